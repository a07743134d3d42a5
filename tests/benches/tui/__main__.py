"""Time to the UI's first frame, from a key to the screen while an answer streams, and CPU when idle.

Everything runs in a real pseudo-terminal of 120x36. First frames are those of the real command. A key counts as painted
when its letter, which no text of this bench contains, comes out of the terminal. The same is measured for a Textual app
with only a text area: the library's own share on this machine.
"""

from __future__ import annotations

import argparse
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.errors import NodeUnreachable
from core.settings import Home
from tests.benches.figures import reach
from tests.benches.results import Aim, Result, print_result
from tests.benches.tui.measured import Phase
from tests.benches.tui.source import FILL_TOKENS
from tests.benches.tui.terminal import WAIT_S, Pty

RATE: Final = 60.0
HISTORY_TOKENS: Final = 10_000
KEY_EVERY_S: Final = 0.23
IDLE_S: Final = 10.0
IDLE_KEY_EVERY_S: Final = 1.0
LETTERS: Final = (b"Q", b"X", b"Z")
SETTLE_S: Final = 2.0
LIMITS: Final = {
    "first_frame_ms": 500.0,
    "key_to_paint_p95_ms": 60.0,
    "loop_lag_max_ms": 60.0,
    "idle_cpu_percent": 8.0,
    "crowd_key_to_paint_p95_ms": 60.0,
    "crowd_idle_cpu_percent": 8.0,
}


class Load(msgspec.Struct, frozen=True):
    """Events of the source besides the answer on screen."""

    macs: int
    rows: int
    history_tokens: int


HOME: Final = Load(3, 1, HISTORY_TOKENS)
CROWD: Final = Load(100, 16, FILL_TOKENS)
MEANING: Final = {
    "first_frame_ms": "the real command, from its start to the first whole frame",
    "key_to_paint_p95_ms": f"{RATE:.0f} tokens/s into a conversation of {HISTORY_TOKENS} tokens, charts live",
    "loop_lag_max_ms": "the same: how late the event loop came back at worst",
    "idle_cpu_percent": "three Macs linked, somebody typing now and then; of one core",
    "crowd_key_to_paint_p95_ms": f"{CROWD.macs} Macs, {CROWD.rows} rows, one of them on screen",
    "crowd_idle_cpu_percent": "the same, but what is written is on no screen; somebody typing",
}


class TuiResult(Result, frozen=True, kw_only=True):
    """Milliseconds, and per cent of one core. `crowd_*`: 100 Macs, 16 rows. `bare_*`: a text area and nothing else."""

    runs: int
    first_frame_ms: float
    key_to_paint_p50_ms: float
    key_to_paint_p95_ms: float
    loop_lag_p95_ms: float
    loop_lag_max_ms: float
    stream_cpu_percent: float
    idle_cpu_percent: float
    crowd_key_to_paint_p95_ms: float
    crowd_lag_max_ms: float
    crowd_idle_cpu_percent: float
    bare_first_frame_ms: float
    bare_key_to_paint_p95_ms: float


class Typed(msgspec.Struct, frozen=True):
    """Milliseconds from key to paint, and the phase in which the keys were typed."""

    keys_ms: list[float]
    phase: Phase


@contextmanager
def source(folder: Path, load: Load) -> Iterator[subprocess.Popen[bytes]]:
    """The socket of a node that sends events at the rate of this bench."""
    command = [sys.executable, "-m", "tests.benches.tui.source", str(Home(folder).socket)]
    command += ["--macs", str(load.macs), "--rows", str(load.rows), "--rate", str(RATE)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    try:
        wait_for(process, b"ready")
        yield process
    finally:
        process.terminate()
        process.wait()
        if process.stdout:
            process.stdout.close()


def wait_for(process: subprocess.Popen[bytes], word: bytes) -> None:
    """Wait for that line of the source, which it prints once. Raises NodeUnreachable if it does not come."""
    assert process.stdout is not None
    while select.select([process.stdout], [], [], WAIT_S)[0] and (line := process.stdout.readline()):
        if line.strip() == word:
            return
    raise NodeUnreachable("The source of the bench says nothing more.")


def first_frame_ms(command: Sequence[str], mark: bytes) -> float:
    """Milliseconds from the start of `command` to `mark` on the screen."""
    with Pty(command) as pty:
        return 1e3 * (pty.seen(mark) - pty.began)


def type_keys(pty: Pty, count: int) -> list[float]:
    """Type `count` letters into the prompt, three and back again; milliseconds from key to paint."""
    dice, found = random.Random(5), []
    for number in range(count):
        letter = LETTERS[number % len(LETTERS)]
        found.append(1e3 * -(pty.type(letter) - pty.seen(letter)))
        time.sleep(KEY_EVERY_S * dice.uniform(0.8, 1.2))
        if number % len(LETTERS) == len(LETTERS) - 1:
            pty.type(b"\x7f" * len(LETTERS))
            time.sleep(KEY_EVERY_S)
    return found


def streaming(folder: Path, load: Load, keys: int) -> tuple[Typed, Phase]:
    """Keys while an answer streams; then the idle phase."""
    phases = folder / "phases"
    with source(folder, load) as other, Pty(_measured(folder, phases)) as pty:
        pty.seen(b"Send")  # the footer of the prompt, once it has the focus
        for _ in range(load.history_tokens // FILL_TOKENS):
            pty.type(b"fill\r")
            wait_for(other, b"done")
            pty.seen(f"{FILL_TOKENS} tok".encode())
            time.sleep(SETTLE_S)
        pty.type(b"stream\r")
        time.sleep(SETTLE_S)
        pty.turn()
        found = type_keys(pty, keys)
        pty.turn()
        pty.type(b"\x1b")
        wait_for(other, b"done")
        time.sleep(SETTLE_S)
        pty.turn()
        for _ in range(round(IDLE_S / IDLE_KEY_EVERY_S)):
            pty.type(LETTERS[0])
            time.sleep(IDLE_KEY_EVERY_S)
        pty.turn()
        return Typed(found, _phase(phases, 1)), _phase(phases, 3)


def bare(folder: Path, keys: int) -> list[float]:
    """Type keys into an app with only a text area."""
    with Pty([*_measured(folder, folder / "bare"), "--bare"]) as pty:
        pty.seen(b"ready")
        time.sleep(SETTLE_S)
        return type_keys(pty, keys)


def _measured(folder: Path, phases: Path) -> list[str]:
    return [sys.executable, "-m", "tests.benches.tui.measured", str(folder), str(phases)]


def _phase(path: Path, number: int) -> Phase:
    """The phase of that number, once it is written."""
    deadline = time.monotonic() + 10
    while len(lines := path.read_bytes().split(b"\n")[:-1] if path.exists() else []) <= number:
        if time.monotonic() > deadline:
            raise NodeUnreachable("The measured app does not answer.")
        time.sleep(0.05)
    return msgspec.json.decode(lines[number], type=Phase)


def p95(values: Sequence[float]) -> float:
    """The 95th percentile of at least two values."""
    return quantiles(values, n=20, method="inclusive")[-1]


def measure(runs: int, keys: int) -> TuiResult:
    """`runs` starts, `keys` letters in each phase. Raises LinkTimeout where the terminal stays empty."""
    command = [sys.executable, "-m", "tui.cli.main", "--home"]
    with TemporaryDirectory(prefix="macluster-tui-") as name:
        folder = Path(name)
        with source(folder, HOME):
            own = [first_frame_ms([*command, name], b"Quit") for _ in range(runs)]
        plain = [first_frame_ms([*_measured(folder, folder / "bare"), "--bare"], b"ready") for _ in range(runs)]
        typed, idle = streaming(folder, HOME, keys)
        (folder / "phases").unlink()
        crowd, crowd_idle = streaming(folder, CROWD, keys)
        beside = bare(folder, keys)
    figures = {
        "first_frame_ms": median(own),
        "key_to_paint_p95_ms": p95(typed.keys_ms),
        "loop_lag_max_ms": 1e3 * max(typed.phase.lags_s),
        "idle_cpu_percent": idle.cpu_percent,
        "crowd_key_to_paint_p95_ms": p95(crowd.keys_ms),
        "crowd_idle_cpu_percent": crowd_idle.cpu_percent,
    }
    return TuiResult(
        **figures,
        ratios={
            "first_frame_over_bare": median(own) / median(plain),
            "key_to_paint_over_bare": p95(typed.keys_ms) / p95(beside),
        },
        reach={name: reach(figures[name], at_most=limit) for name, limit in LIMITS.items()},
        cores=cores(),
        system=system(),
        runs=runs,
        key_to_paint_p50_ms=median(typed.keys_ms),
        loop_lag_p95_ms=1e3 * p95(typed.phase.lags_s),
        stream_cpu_percent=typed.phase.cpu_percent,
        crowd_lag_max_ms=1e3 * max(crowd.phase.lags_s),
        bare_first_frame_ms=median(plain),
        bare_key_to_paint_p95_ms=p95(beside),
    )


def describe(result: TuiResult) -> str:
    """The table for people."""
    rows = [_row(name, getattr(result, name), result.reach[name]) for name in LIMITS]
    return "\n".join(
        [
            f"The terminal UI in a pseudo-terminal; {result.system}, {result.cores} cores; {result.runs} starts.",
            "",
            f"  {'':25} {'here':>8} {'at most':>8}",
            *rows,
            "",
            f"  While streaming: key to paint {result.key_to_paint_p50_ms:.0f} ms in the median, event loop "
            f"{result.loop_lag_p95_ms:.0f} ms late (p95), {result.stream_cpu_percent:.0f} % of a core.",
            f"  {CROWD.macs} Macs and {CROWD.rows} rows: event loop {result.crowd_lag_max_ms:.0f} ms late at worst.",
            f"  A text area alone: first frame {result.bare_first_frame_ms:.0f} ms, key to paint p95 "
            f"{result.bare_key_to_paint_p95_ms:.0f} ms; ours over that: {result.ratios['first_frame_over_bare']:.2f} "
            f"and {result.ratios['key_to_paint_over_bare']:.2f}.",
        ]
    )


def _row(name: str, value: float, limit: Aim) -> str:
    verdict = "reached" if limit.reached else "NOT reached"
    return f"  {name:25} {value:8.1f} {limit.limit:8.0f}   {verdict}: {MEANING[name]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench tui", description="How quick the terminal UI is.")
    parser.add_argument("--runs", type=positive, default=5, help="starts to take the median of (default %(default)s)")
    parser.add_argument("--keys", type=positive, default=60, help="letters a phase (default %(default)s)")
    return print_result(parser, lambda args: measure(args.runs, args.keys), describe, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
