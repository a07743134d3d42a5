"""The head saves and loads between its turns, in one process; every kind of end leaves nothing in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.engine.prefix_cache import CachedPrefix
from core.engine.requests import Request
from core.engine.sessions import path_of, reading
from core.errors import LinkLost, SessionError
from core.events import Plan, Stage
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from core.worker.head import Head
from core.worker.messages import (
    AnswerDone,
    LoadSession,
    Report,
    SaveSession,
    SessionFailed,
    SessionLoaded,
    SessionSaved,
)
from core.worker.pipeline import Pipeline
from core.worker.sessions import chosen
from core.worker.stage import LoadedStage as WorkerStage
from core.worker.telemetry import StageMeter
from tests.support.grammars import BYTES
from tests.support.made import build

pytestmark = pytest.mark.slow

SECRET = b"s" * 32
PROMPT = [5, 6, 7, 8, 9, 10]
VARIANT = "llama"


def a_plan() -> Plan:
    alone = Stage(device_id="a", peer="mac", start=0, stop=8, weight_bytes=0, kv_bytes=0, budget_bytes=0)
    return Plan(
        plan_gen=1,
        model="tiny",
        fingerprint="f",
        topology="single",
        layers=8,
        context=100,
        chunk=4,
        rows=2,
        stages=(alone,),
        output="a",
    )


class SessionRing:
    """A head that owns the whole model, and its reports."""

    def __init__(self, folder: Path) -> None:
        whole = build(VARIANT)
        layers = Slice(whole, ModelProbe(whole), 0, 8, embed=True, output=True)
        self.reports: list[Report] = []
        pipeline = Pipeline(WorkerStage(layers, StageMeter(0)), a_plan(), 5.0)
        self.head = Head(a_plan(), pipeline, self.reports.append, BYTES)
        self.path = path_of(folder / "sessions", "x")

    def turn(self) -> None:
        inbox: Any = None
        self.head.turn(inbox)

    def rest(self) -> list[Report]:
        """Take turns until nothing is left; returns the reports meanwhile."""
        mark = len(self.reports)
        while self.head.is_busy:
            self.turn()
        return self.reports[mark:]

    def ask(self, tokens: list[int]) -> AnswerDone:
        self.head.submit(Request(request_id="ab" * 16, tokens=tokens, max_tokens=4))
        return next(report for report in self.rest() if isinstance(report, AnswerDone))

    def save(self, tokens: list[int]) -> None:
        order = SaveSession(path=str(self.path), secret=SECRET, tokens=tokens, messages=(), created_at=1.0)
        self.head.sessions.save(order)

    def load(self) -> None:
        self.head.sessions.load(LoadSession(path=str(self.path), secret=SECRET))


@pytest.fixture
def ring(tmp_path: Path) -> SessionRing:
    return SessionRing(tmp_path)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file with PROMPT and the start of its answer."""
    ring = SessionRing(tmp_path)
    ring.ask(PROMPT)
    ring.save(held(ring))
    assert ring.rest() == [SessionSaved()]
    return ring.path


def held(ring: SessionRing) -> list[int]:
    """The tokens of its newest parked row."""
    return list(ring.head._scheduler.parked[-1].tokens)


def test_what_was_saved_is_reused_once_it_is_loaded(ring: SessionRing, saved: Path) -> None:
    tokens = reading(saved, SECRET)[0].tokens
    ring.load()
    assert ring.rest() == [SessionLoaded()]
    assert ring.ask([*tokens, 3, 4]).reused_tokens == len(tokens)


def test_a_row_is_of_no_use_while_it_comes(ring: SessionRing, saved: Path) -> None:
    tokens = reading(saved, SECRET)[0].tokens
    ring.load()
    ring.turn()
    assert ring.ask([*tokens, 3, 4]).reused_tokens == 0


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 9])
def test_what_is_given_up_leaves_nothing(ring: SessionRing, saved: Path, turns: int) -> None:
    before = saved.read_bytes()
    tokens = reading(saved, SECRET)[0].tokens
    for begin in (ring.load, lambda: ring.save(held(ring))):
        ring.ask([8, 9, 8, 7])
        begin()
        for _ in range(turns):
            ring.turn()
        ring.head.sessions.fail(LinkLost("It is over.").problem)
        assert ring.reports[-1] == SessionFailed(problem=LinkLost("It is over.").problem)
        ring.rest()
        assert [path.name for path in saved.parent.iterdir()] == ["x.mcs"]
        assert saved.read_bytes() == before
    assert ring.ask([*tokens, 3, 4]).reused_tokens == 0
    assert not ring.head._scheduler._prefixes._pins
    assert len(ring.head.pipeline._shapes) == len(ring.head._scheduler.parked)


def test_another_one_has_to_wait(ring: SessionRing, saved: Path) -> None:
    ring.load()
    for begin in (ring.load, lambda: ring.save(PROMPT)):
        begin()
        (refused,) = ring.reports[-1:]
        assert isinstance(refused, SessionFailed)
        assert refused.problem.kind == "Busy"
    assert ring.rest() == [SessionLoaded()]


def test_what_the_ring_forgets_ends_it(ring: SessionRing, saved: Path) -> None:
    ring.load()
    ring.turn()
    ring.head.fail_all(LinkLost("All is lost.").problem)
    assert isinstance(ring.reports[-1], SessionFailed)
    assert not ring.head.sessions.is_busy


@pytest.mark.parametrize(
    ("rows", "limit", "best"),
    [
        pytest.param([(1, 2, 3), (1, 2, 3, 4)], None, 1, id="the longest"),
        pytest.param([(1, 2, 3), (1, 2, 9, 9)], None, 0, id="not another one"),
        pytest.param([(1, 2, 3), (1, 2, 3, 4, 5, 6)], None, 1, id="one that holds more"),
        pytest.param([(1, 2, 3), (1, 2, 3, 4, 5, 6)], 5, 0, id="not one that holds more and cannot be trimmed"),
        pytest.param([(9,), (2, 3)], None, None, id="none"),
        pytest.param([], None, None, id="nothing"),
    ],
)
def test_the_row_that_is_of_most_use_is_saved(rows: list[tuple[int, ...]], limit: int | None, best: int | None) -> None:
    parked = [CachedPrefix(number, tokens) for number, tokens in enumerate(rows)]
    if best is None:
        with pytest.raises(SessionError, match="no longer in memory"):
            chosen(parked, [1, 2, 3, 4, 5], limit)
    else:
        assert chosen(parked, [1, 2, 3, 4, 5], limit).handle == best
