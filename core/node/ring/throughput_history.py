"""How fast these Macs were: learned from the node's events, kept in a file, used for forecasts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from core import events
from core.models.files.layout import Layout
from core.node.ring.speed_measurements import AnswerMeasurement, LoadMeasurement, Measured, MeasuredLoad
from core.plan import cost_curve
from core.plan.forecast import MacSpeeds, apart_s, plan_work_of
from core.plan.hop_bytes import hop_bytes
from core.settings import Home
from core.trust.file_formats import JsonFile

# keeps the file below `core.trust.private_files.MAX_PRIVATE_FILE`
MOST_CURVES: Final = 128
DIGITS: Final = 7

# states in which nothing is loaded again, so a slow step counts as slow
_GOES_ON: Final[tuple[events.RecoveryState, ...]] = ("running", "suspect", "stuck")

_Figure = Annotated[float, msgspec.Meta(ge=0, le=1e18)]
# an amount above zero, then its times in seconds
_Measured = Annotated[tuple[_Figure, ...], msgspec.Meta(min_length=2, max_length=1 + cost_curve.MOST_TIMES)]
_Points = Annotated[tuple[_Measured, ...], msgspec.Meta(max_length=cost_curve.MOST_POINTS)]
_FILE: Final = JsonFile[Mapping[str, Sequence[Sequence[float]]]](
    Home.throughput, dict[Annotated[str, msgspec.Meta(max_length=64)], _Points]
)


class ThroughputHistory:
    """Cost curves by the names of `core.plan.cost_curve.curve_name`, the last changed at the end.

    The first answer of new workers pays one-time costs (weights read from disk, GPU kernels compiled), so it counts
    only where nothing is known, until the next answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.curves: cost_curve.Curves = read_curves(path)
        self._layouts: tuple[str, Layout] | None = None
        self._loaded: MeasuredLoad | None = None
        self._loading: LoadMeasurement | None = None
        self._plan: events.Plan | None = None
        self._answer: AnswerMeasurement | None = None
        self._running: set[str] = set()
        self._is_warm = False
        self._cold: set[str] = set()  # curves with data of first answers only

    def about(self, fingerprint: str, layout: Layout) -> None:
        """The next proposed plan is of the model with this fingerprint and layout."""
        self._layouts = fingerprint, layout

    async def take_in(self, event: events.AnyEvent, now: float) -> None:
        before = self.curves
        self.handle_event(event, now)
        if self.curves is not before:
            await asyncio.to_thread(write_curves, self._path, self.curves)

    def handle_event(self, event: events.AnyEvent, now: float) -> None:
        """Learn from an event; `now` in monotonic seconds."""
        match event:
            case events.PlanProposed(plan=plan):
                known = self._layouts if self._layouts and self._layouts[0] == plan.fingerprint else None
                staying = self._plan.stages if self._plan and self._plan.fingerprint == plan.fingerprint else ()
                held = frozenset(stage.device_id for stage in staying)
                self._answer, self._loading = None, LoadMeasurement(plan, now, held)
                self._loaded = (
                    MeasuredLoad(plan, plan_work_of(plan, known[1], hop_bytes(plan, None), 0)) if known else None
                )
            case events.StageState() if self._loading:
                self._loading.handle_event(event, now)
            case events.PlanLoaded() if self._loading:
                self._plan = self._loading.plan
                self._learn(self._loading.ended(now))
                self._loading, self._is_warm = None, False
            case events.PlanFailed() | events.PlanUnloaded():
                self._answer = self._loading = self._plan = None
            case events.Recovery(state=state) if state not in _GOES_ON:
                self._answer, self._loading, self._is_warm = None, None, False
            case events.RequestStarted(request_id=started):
                is_alone = not self._running and self._loaded is not None
                self._running.add(started)
                self._answer = AnswerMeasurement(started, self._loaded) if is_alone and self._loaded else None
            case events.Progress(request_id=request_id) | events.TokenEvent(request_id=request_id):
                if self._answer and request_id == self._answer.request_id:
                    self._answer.handle_event(event)
            case events.HopSample() if self._answer:
                self._answer.handle_event(event)
            case events.RequestDone(request_id=ended):
                self._running.discard(ended)
                if self._answer and self._answer.request_id == ended:
                    found = self._answer.ended(event, self._lead_s(), self._apart_s)
                    self._learn(found if self._is_warm else self._unknown(found))
                    self._answer = None
                self._is_warm = self._is_warm or event.tokens > 0
            case _:
                return

    def _lead_s(self) -> float:
        head = self._loaded.plan.head.device_id if self._loaded else ""
        lead = self.curves.get(cost_curve.curve_name("lead", head), ())
        return cost_curve.seconds_for(lead, 1, cost_curve.REACH["lead"]) or 0.0

    def _apart_s(self, tokens: float) -> float | None:
        return apart_s(self._loaded.work, MacSpeeds({}, lambda *_: None, self.curves), tokens) if self._loaded else None

    def _unknown(self, found: list[Measured]) -> list[Measured]:
        """Measurements that a first answer may add: for empty curves, except the plan's total, which its parts describe
        better.
        """
        unknown = [each for each in found if each.curve not in self.curves and not cost_curve.is_whole(each.curve)]
        self._cold.update(each.curve for each in unknown)
        return unknown

    def _learn(self, found: list[Measured]) -> None:
        curves = dict(self.curves)
        for each in found:
            if each.amount > 0:
                known, anew = curves.pop(each.curve, ()), each.curve in self._cold
                curves[each.curve] = cost_curve.learned(known, each.amount, each.seconds, anew=anew)
        if self._is_warm:
            self._cold.difference_update(each.curve for each in found)
        if found:
            self.curves = dict(list(curves.items())[-MOST_CURVES:])


def read_curves(path: Path) -> dict[str, cost_curve.Curve]:
    """Read the file; one that is damaged, newer, or not private to this user, counts as empty."""
    found = _FILE.try_to_read(path) or {}
    amounts = {name: {amount: times for amount, *times in points if amount} for name, points in found.items()}
    return {
        name: tuple(sorted(cost_curve.point_of(*each) for each in points.items())) for name, points in amounts.items()
    }


def write_curves(path: Path, curves: Mapping[str, cost_curve.Curve]) -> None:
    # on a full disk the next answers bring the figures again
    _FILE.try_to_write(path, {name: [*map(_kept, curve)] for name, curve in curves.items()})


def _kept(point: cost_curve.Point) -> list[float]:
    return [float(f"{figure:.{DIGITS}g}") for figure in (point.amount, *(point.times or (point.seconds,)))]
