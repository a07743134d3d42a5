"""Results of a round: one line for each try, REPORT.md and REPORT.json at its end."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from tests.chaos.faults import FAULTS

COLUMNS: Final = ("detected", "on again", "longest pause", "linked again")
COMMAND: Final = "python -m tests.chaos --only {name} --seed {seed} --tries 1"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One try: the seconds count from the fault, `None` if there was nothing to measure.

    `again`: tokens read again despite a mirror. `wrong` lists the faults found; `evidence` has the last lines of the
    Macs' logs if there are any.
    """

    fault: str
    seed: int
    point: str = ""
    tokens: int = 0
    detected_s: float | None = None
    recovered_s: float | None = None
    pause_s: float | None = None
    back_s: float | None = None
    again: int | None = None
    wrong: tuple[str, ...] = ()
    evidence: str = ""

    @property
    def command(self) -> str:
        """The command that repeats it."""
        return COMMAND.format(name=self.fault, seed=self.seed)

    @property
    def line(self) -> str:
        """The line shown during the round."""
        said = "; ".join(self.wrong) if self.wrong else "equal"
        times = ", ".join(f"{name} {_seconds([value])}" for name, value in zip(COLUMNS, self.times, strict=True))
        again = "" if self.again is None else f", {self.again} tokens read again"
        return f"{self.fault} at {self.point or '?'}: {said} ({times}{again})"

    @property
    def times(self) -> tuple[float | None, ...]:
        """Times in the order of `COLUMNS`."""
        return self.detected_s, self.recovered_s, self.pause_s, self.back_s


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """All tries, and their machine. `skipped`: faults that this machine can't make, and why."""

    kind: str
    seed: int
    began: str
    seconds: float
    load: tuple[float, float, float]
    outcomes: tuple[Outcome, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    machine: str = (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The tries with a fault found."""
        return tuple(one for one in self.outcomes if one.wrong)


def write(told: Round, markdown: Path) -> None:
    """Write the report as Markdown and as JSON."""
    markdown.write_text(as_markdown(told), "utf-8")
    markdown.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n")


def as_markdown(told: Round) -> str:
    """Medians and maxima of every fault, and every try that failed."""
    tokens = sum(one.tokens for one in told.outcomes)
    lines = [
        "# What faults do to an answer",
        "",
        f"`make chaos` ({told.kind} round, seed {told.seed}, {told.began}): {len(told.outcomes)} tries, "
        f"{len(told.outcomes) - len(told.failed)} passed; {tokens:,} tokens were compared with an "
        f"undisturbed run. It took {told.seconds / 60:.0f} minutes on {told.machine}, shared by all simulated Macs "
        f"(load {told.load[0]:.1f} at the end).",
        "",
        "A try passes if every token equals the undisturbed one and is shown once, in order, the answer ends once, and "
        "the right processes remain. Seconds count from the fault until the loss is detected, and until the answer "
        "continues: median, maximum. Times are reported; they don't decide.",
        "",
        f"| fault | tries | passed | demand | {' | '.join(COLUMNS)} | read again |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row for fault in FAULTS if (row := _row(fault.name, fault.what, fault.demand, told.outcomes))),
        *(f"| {name} | 0 | skipped: {why} | | | | | | |" for name, why in told.skipped),
        "",
    ]
    if told.failed:
        lines += ["## Failed", "", *(f"- `{one.command}`: {one.line}" for one in told.failed), ""]
    return "\n".join(lines)


def _row(name: str, what: str, demand: str, outcomes: Sequence[Outcome]) -> str:
    of = [one for one in outcomes if one.fault == name]
    passed = sum(not one.wrong for one in of)
    figures = " | ".join(_seconds(values) for values in zip(*(one.times for one in of), strict=True))
    again = sorted(one.again for one in of if one.again is not None)
    read = f"{round(median(again))}, {again[-1]} tokens" if again else "-"
    return f"| {what} | {len(of)} | {passed} | {demand} | {figures} | {read} |" if of else ""


def _seconds(values: Sequence[float | None]) -> str:
    """Median and maximum of the known values."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    one, most = (f"{value:.2f}" if value < 1 else f"{value:.1f}" for value in (median(known), max(known)))
    return f"{one} s" if len(known) == 1 else f"{one}, {most} s"
