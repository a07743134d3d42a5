"""Reports of a soak from given samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.soak.answers import latencies, lost
from tests.soak.report import LEVEL, PLAIN, Soaked, figures, markdown
from tests.support.crowd import QuestionOutcome

MINUTES = [minute / 60 for minute in range(61)]


def soaked(**changes: object) -> Soaked:
    fields: dict[str, object] = {
        "machine": "a machine",
        "date": "2026-11-23 23:00",
        "hours": 1.0,
        "clients": 2,
        "leaving": 0.2,
        "come": {"right": 9, "left": 1},
        "wrong": [],
        "lost": [],
        "defects": [],
        "done": {"reloaded": 2},
        "seconds": {"reloaded": [1.0, 2.0]},
        "own_ms": {"parse": (0.1, 0.2)},
        "processor_ms_a_request": 50.0,
        "longest_s": 2.0,
        "figures": [],
    }
    return Soaked(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("memory (MiB), studio, node", lambda at: 70 + at, False),
        ("memory (MiB), studio, node", lambda at: 70 + 8 * at, True),
        ("descriptors, mbp, worker", lambda at: 20 + round(6 * at), True),
        ("threads, mbp, worker", lambda at: 9.0, False),
        ("disk (MiB), mini", lambda at: 0.1 + at, False),
        (LEVEL, lambda at: 1 + 0.3 * at, True),
        (PLAIN, lambda at: 1 + 3 * at, False),  # no bound: the machine may do more
    ],
)
def test_every_figure_has_its_bound(name: str, value: Callable[[float], float], expected: bool) -> None:
    (found,) = figures({name: [(at, value(at)) for at in MINUTES]})
    assert found.drifts is expected
    told = soaked(figures=[found])
    assert told.holds is not expected
    assert ("DRIFTS" in markdown(told)) is expected


def test_a_run_in_which_something_went_wrong_does_not_hold() -> None:
    assert soaked().holds
    for what in ("wrong", "lost", "defects"):
        assert not soaked(**{what: ["this"]}).holds
        assert f"{what}: this" in markdown(soaked(**{what: ["this"]}))


@pytest.mark.parametrize(
    ("what", "at", "is_lost"),
    [
        ("right", 50.0, False),
        ("left", 50.0, False),
        ("status 503", 50.0, True),
        ("status 503", 11.0, False),  # during a load
        ("error", 11.0, False),
        ("status 503", 21.0, False),  # during a recovery
        ("error", 21.0, True),  # a running request must be answered
        ("too late", 50.0, True),
    ],
)
def test_a_question_may_fail_only_where_no_model_is_there(what: str, at: float, is_lost: bool) -> None:
    assert bool(lost([QuestionOutcome(at, 0, 1.0, what)], loads=[(10.0, 12.0)], recoveries=[(20.0, 22.0)])) is is_lost


def test_the_latency_beside_other_work_is_level_where_the_machine_is_slower_for_both() -> None:
    beside = [(float(at), 0.1 if at < 70 else 0.3) for at in range(100)]
    told = [QuestionOutcome(at + 0.5, at % 3, (1 + at % 3) * (1.0 if at < 69 else 3.0), "right") for at in range(99)]
    found = latencies([*told, QuestionOutcome(99.0, 1, 77.0, "left")], beside)
    assert {round(value / found[PLAIN][0][1]) for _, value in found[PLAIN]} == {1, 3}
    assert {round(value / found[LEVEL][0][1], 6) for _, value in found[LEVEL]} == {1.0}
