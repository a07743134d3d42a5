"""`macluster trace`: time of each phase on every stage while answers run, and a file for trace viewers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from core.errors import UsageError
from core.requests.trace import MOST_TRACED_S, PHASES, STEP_TOTAL, StageTrace, TraceRequest, TraceResult, TurnKind
from core.trace.perfetto import perfetto_trace
from core.trace.phases import StepPhases, flights, steps_of
from tui.cli.launch import home_of
from tui.cli.output import Facts, print_facts, print_progress
from tui.client import NodeClient, check

KINDS: Final[dict[TurnKind, str]] = {"chunk": "prefill", "step": "decode"}


def add_options(parser: argparse.ArgumentParser) -> None:
    opens = "write a trace file for https://ui.perfetto.dev (Chrome's format)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=opens)
    how_long = f"seconds to trace, at most {MOST_TRACED_S:.0f} (default %(default)s)"
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help=how_long)


async def trace(args: argparse.Namespace) -> None:
    """Trace every stage for some seconds and print medians per phase."""
    request = TraceRequest(seconds=args.seconds)
    check(request)
    async with NodeClient(home_of(args)) as client:
        print_progress(f"Tracing for {args.seconds:g} s …")
        traced = await client.trace(request)
    if args.output:
        try:
            args.output.write_text(perfetto_trace(traced.stages, traced.model), "utf-8")
        except OSError as error:
            raise UsageError(f"Can't write {args.output}: {error.strerror}.", "Choose another file.") from error
    print_facts(args, trace_facts(traced), trace_lines(traced, args.output))


def trace_facts(traced: TraceResult) -> Facts:
    """Facts for `--json`: medians in seconds."""
    return {
        "model": traced.model,
        "seconds": traced.seconds,
        "stages": [
            {
                "mac": stage.mac,
                "clock_ahead_s": stage.ahead_s,
                "clock_error_s": stage.error_s,
                **{words: _medians(_of(stage, kind)) for kind, words in KINDS.items()},
            }
            for stage in traced.stages
        ],
        "hops": [{"flight_s": median(hop.values()) if hop else None} for hop in _flights(traced)],
    }


def trace_lines(traced: TraceResult, output: Path | None) -> list[str]:
    """Lines for people: medians in microseconds, one column per stage."""
    if not any(stage.turns for stage in traced.stages):
        return ["No stage computed anything. Send the model a request while tracing."]
    return [
        *(line for kind, words in KINDS.items() for line in _table(traced.stages, kind, words)),
        *(_hop(traced.stages, number, hop) for number, hop in enumerate(_flights(traced))),
        *([f"{output}: open it at https://ui.perfetto.dev"] if output else []),
    ]


def _table(stages: Sequence[StageTrace], kind: TurnKind, words: str) -> Iterator[str]:
    steps = [_of(stage, kind) for stage in stages]
    if not any(steps):
        return
    yield f"{f'{words}, µs per step':20}" + "".join(f"{stage.mac[:11]:>12}" for stage in stages)
    medians = [_medians(each) for each in steps]
    for name in (*PHASES, STEP_TOTAL):
        cells = [f"{1e6 * of[name]:12.0f}" if name in of else f"{'':12}" for of in medians]
        yield f"  {name:18}" + "".join(cells)
    yield f"  {'steps':18}" + "".join(f"{len(each):12}" for each in steps)
    yield ""


def _hop(stages: Sequence[StageTrace], number: int, hop: dict[int, float]) -> str:
    source, target = stages[number], stages[(number + 1) % len(stages)]
    if not hop:
        return f"{source.mac} → {target.mac}: no frame was traced at both ends"
    error_s = source.error_s + target.error_s
    return f"{source.mac} → {target.mac}: {1e6 * median(hop.values()):.0f} µs from send to open, ±{1e6 * error_s:.0f}"


def _of(stage: StageTrace, kind: TurnKind) -> list[StepPhases]:
    return [step for step in steps_of(stage.turns).values() if step.kind == kind]


def _medians(steps: Sequence[StepPhases]) -> dict[str, float]:
    if not steps:
        return {}
    traced: dict[str, float] = {phase: median(step.seconds[phase] for step in steps) for phase in PHASES}
    return {**traced, STEP_TOTAL: median(step.total_s for step in steps)}


def _flights(traced: TraceResult) -> list[dict[int, float]]:
    return flights(traced.stages) if len(traced.stages) > 1 else []
