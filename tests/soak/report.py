"""Results of a soak, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.soak.drift import Bound, Samples, drifts, thinned, trend

PLAIN: Final = "latency"
LEVEL: Final = "latency over fixed work"
# by the start of a figure's name, up to its comma
BOUNDS: Final = {
    "memory (MiB)": Bound(0.05, 2.0),
    "descriptors": Bound(0.05, 2.0),
    "threads": Bound(0.05, 1.0),
    "disk (MiB)": Bound(0.0, 2.0),  # a log is rotated at 4 MiB, and one old one is kept
    LEVEL: Bound(0.10, 0.0),
}
HOW: Final = (
    "The slope is the median slope between all pairs of samples (Theil–Sen); a sample is the median of a sixtieth of "
    "the run after its first tenth. The interval is Sen's, of 95 %. A figure drifts if the whole interval lies above "
    "the bound. Restarted processes continue the line of their kind. Latency is an answer's time over the median for "
    "the same question. In seconds it has no bound, because it depends on the machine's other work; the second figure "
    "divides it by the time of a fixed piece of work done meanwhile."
)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over the run: its median, its slope per hour with the 95 % interval, its bound, and its samples.

    `bound` is None if no growth counts; samples are (hours, value).
    """

    name: str
    middle: float
    slope: float
    low: float
    high: float
    bound: float | None
    drifts: bool
    samples: list[tuple[float, float]]


class Soaked(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a run.

    * `come`: outcomes of the questions.
    * `wrong`: answers unlike those given alone; `defects`: in the logs; `lost`: questions that failed while no
      model was loaded. All three should be empty.
    * `done`: how often each disturbance was made; `seconds`: how long each took, sorted.
    * `own_ms`: median and 95th percentile of the node's own time per request.
    """

    machine: str
    date: str
    hours: float
    clients: int
    leaving: float
    come: dict[str, int]
    wrong: list[str]
    lost: list[str]
    defects: list[str]
    done: dict[str, int]
    seconds: dict[str, list[float]]
    own_ms: dict[str, tuple[float, float]]
    processor_ms_a_request: float
    longest_s: float
    figures: list[Figure]

    @property
    def holds(self) -> bool:
        """Whether nothing drifts and nothing went wrong."""
        return not (any(one.drifts for one in self.figures) or self.wrong or self.lost or self.defects)


def figures(taken: Mapping[str, Samples]) -> Iterator[Figure]:
    """Figures with enough samples."""
    for name, samples in taken.items():
        few = thinned(samples)
        bound = BOUNDS.get(name.partition(",")[0])
        if found := trend(few):
            yield Figure(
                name=name,
                middle=found.middle,
                slope=found.slope,
                low=found.low,
                high=found.high,
                bound=bound and bound.most(found.middle),
                drifts=bound is not None and drifts(found, bound),
                samples=[(round(at, 4), round(value, 3)) for at, value in few],
            )


def markdown(told: Soaked) -> str:
    """The report as Markdown."""
    return "\n".join(_lines(told)) + "\n"


def write(told: Soaked, path: Path) -> None:
    """Write the report to `path` as Markdown, and as JSON with the same name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(markdown(told), "utf-8")
    path.with_suffix(".json").write_bytes(msgspec.json.encode(told) + b"\n")


def _lines(told: Soaked) -> Iterator[str]:
    yield "# Soak"
    yield ""
    yield f"{told.machine} | {told.date} UTC | {told.hours:.2f} hours, `make soak`"
    yield ""
    drifting = [one.name for one in told.figures if one.drifts]
    verdict = f"{', '.join(drifting)}: DRIFTS" if drifting else f"None of {len(told.figures)} figures drifts"
    yield (
        f"{told.clients} clients ask the API of three simulated Macs, {told.leaving:.0%} leave before they are "
        f"answered; meanwhile a Mac is killed and comes back, and the model is loaded again, in turn. **{verdict}.**"
    )
    yield from _table("Result of a question|Times", (f"{what}|{many}" for what, many in sorted(told.come.items())))
    yield from _table(
        "What was done|Times|Seconds: median|longest",
        (
            f"{what}|{many}|{_middle(told.seconds[what])}|{max(told.seconds[what], default=0.0):.1f}"
            for what, many in told.done.items()
        ),
    )
    own = ", ".join(f"{name} {middle:g} / {most:g}" for name, (middle, most) in told.own_ms.items())
    yield ""
    yield (
        f"The head's node computed {told.processor_ms_a_request:g} ms a question; its own times of one (median / 95 of "
        f"100, in ms): {own}. The slowest answer took {told.longest_s:.1f} s."
    )
    for name, faults in (("wrong", told.wrong), ("lost", told.lost), ("defects", told.defects)):
        yield ""
        yield f"{name}: {'; '.join(faults) if faults else 'none'}"
    yield ""
    yield HOW
    yield from _table(
        "Figure|Median|Slope an hour|95 %|Bound|",
        (
            f"{one.name}|{one.middle:.3g}|{one.slope:+.3g}|{one.low:+.3g} to {one.high:+.3g}|{_verdict(one)}"
            for one in told.figures
        ),
    )


def _verdict(one: Figure) -> str:
    return "none|" if one.bound is None else f"{one.bound:.3g}|{'DRIFTS' if one.drifts else 'steady'}"


def _middle(seconds: list[float]) -> str:
    ordered = sorted(seconds) or [0.0]
    return f"{ordered[len(ordered) // 2]:.1f}"


def _table(heads: str, rows: Iterator[str]) -> Iterator[str]:
    yield ""
    yield f"|{heads}|"
    yield "|" + "---|" * len(heads.split("|"))
    for row in rows:
        yield f"|{row}|"
