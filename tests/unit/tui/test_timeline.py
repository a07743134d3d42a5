"""Steps of a trace as bars: lanes, one clock, a cell's content; the screen with and without a running answer."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from core.errors import NotLoaded
from core.events import Batch, BatchRow, Snapshot
from core.requests.trace import PHASES, Phase, PhaseTurn, StageTrace, TraceRequest, TraceResult, TurnKind
from tests.support.app import StillNode, text_of
from tests.support.screen_events import PLAN
from tui.app import MaclusterApp
from tui.screens.timeline import (
    TimelineScreen,
    bars_content,
    clock_words,
    phases_content,
    title_content,
    track_content,
    why_empty,
)
from tui.state.format import DIM
from tui.state.timeline import SHOWN, TrackName, cells, ends_of, next_name, steps_in, tracks_of

READY = Snapshot(plan=PLAN, plan_status="ready")
RUNNING = msgspec.structs.replace(READY, batch=Batch(rows=(BatchRow(request_id="a" * 32, state="writing"),)))


def turn(step: int, start_s: float, *laps: tuple[Phase, float], kind: TurnKind = "step", handle: int = 7) -> PhaseTurn:
    numbered = tuple((PHASES.index(phase), seconds) for phase, seconds in laps)
    return PhaseTurn(step, kind, start_s, sum(seconds for _, seconds in laps), numbered, handle)


def told_of(steps: int) -> TraceResult:
    """Two lanes in turn, a second each: the head computes for half of it, then the other Mac (clock 50 s ahead)."""
    head = [turn(n, 1.0 * n, ("layers_compute", 0.4), ("send_hop", 0.1), handle=7 + n % 2) for n in range(1, steps + 1)]
    other = [
        turn(n, 50.0 + n, ("recv_wait", 0.5), ("layers_compute", 0.5), handle=7 + n % 2) for n in range(1, steps + 1)
    ]
    of_head_alone = turn(steps + 1, steps + 1.0, ("layers_compute", 0.4))
    composing = turn(steps + 2, steps + 2.0, ("layers_compute", 0.4), kind="compose")
    return TraceResult(
        model="tiny",
        seconds=1.0,
        stages=(
            StageTrace(mac="a", index=0, turns=(*head, of_head_alone, composing)),
            StageTrace(mac="b", index=1, turns=(*other, composing), ahead_s=50.0, error_s=0.0002),
        ),
    )


def test_what_every_stage_told_of_is_drawn_lane_by_lane_on_one_clock() -> None:
    told = told_of(8)
    steps = steps_in(told)
    assert steps.numbers == tuple(range(1, 9))
    assert [steps.lanes[n] for n in (1, 2, 3)] == [2, 1, 2]
    assert steps.last(0) == (1,)
    chosen = steps.last(7)
    assert chosen == tuple(range(9 - SHOWN, 9))
    tracks = tracks_of(told, steps, chosen)
    assert [(track.stage, track.lane) for track in tracks] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert [*ends_of(tracks), *ends_of(tracks, 8)] == pytest.approx([4.0, 9.0, 8.0, 9.0])
    drawn = bars_content(told, steps, 7, 11 + 8 + 50).plain.split("\n")
    assert drawn[1:5] == [
        "a          lane 1  ████▒               ████▒               ████▒     ",
        "           lane 2            ████▒               ████▒               ",
        "b          lane 1  ·····█████          ·····█████          ·····█████",
        "           lane 2            ·····█████          ·····█████          ",
    ]
    assert drawn[0].strip() == "├ 1.0 s ─┤"
    assert drawn[0].index("├") == 11 + 8 + 40
    assert clock_words(told).endswith("Clock error: b ±0.20 ms.")


def test_a_cell_shows_what_took_most_of_its_time() -> None:
    told = TraceResult(
        model="m",
        seconds=1.0,
        stages=(
            StageTrace(mac="a", index=0, turns=(turn(1, 0.0, ("embed", 0.9), ("aead_seal", 1.2), ("recv_wait", 1.9)),)),
        ),
    )
    (track,) = tracks_of(told, steps_in(told), (1,))
    assert cells(track.bars, (0.0, 6.0), 3) == ["moves", "waits", None]
    assert cells(track.bars, (0.0, 0.0), 2) == [None, None]
    assert clock_words(told) == "Times by the clock of a."


def test_the_phases_of_a_step_stand_beside_each_other() -> None:
    told = told_of(3)
    lines = phases_content(told, 2, 76).plain.split("\n")
    assert [line.rsplit(maxsplit=2) for line in lines] == [
        ["µs", "a", "b"],
        ["wait", "–", "500000"],
        ["compute layers", "400000", "500000"],
        ["send", "100000", "–"],
        ["whole step", "500000", "1000000"],
    ]
    assert title_content(told, steps_in(told), 1, 80).plain.endswith("decode step 2, lane 1 · 2 of 3 ")


def test_one_stage_and_lane_alone_has_its_bars_and_the_phases_of_each_of_its_steps() -> None:
    told = told_of(8)
    steps = steps_in(told)
    tracks = tracks_of(told, steps, steps.last(7))
    names = [None, (0, 1), (0, 2), (1, 1), (1, 2), None]
    assert [next_name(tracks, TrackName(*a) if a else None, 1) for a in names[:-1]] == names[1:]
    assert next_name(tracks, None, -1) == (1, 2)
    assert next_name(tracks, TrackName(1, 9), 1) == (0, 1)  # of steps that are no longer shown
    alone = TrackName(1, 2)
    drawn = bars_content(told, steps, 7, 11 + 8 + 50, alone)
    lines = drawn.plain.split("\n")
    assert lines[4].startswith("           ▸lane 2           ·····█████")
    assert "▸" not in "".join(lines[:4])
    (at,) = [number for number, line in enumerate(drawn.split("\n")) if "▸" in line.plain]
    dim = [number for number, line in enumerate(drawn.split("\n")[1:5], 1) if {s.style for s in line.spans} == {DIM}]
    assert dim == [1, 2, 3]
    assert at == 4
    table = [line.split() for line in track_content(told, steps, 7, alone, 76).plain.split("\n")]
    assert table[0] == ["µs", "step", "5", "step", "7"]
    assert table[-1] == ["whole", "step", "1000000", "1000000"]


@pytest.mark.parametrize("most", [0.0, 5e-324, 1e9], ids=str)
@pytest.mark.parametrize("width", [1, 58, 116], ids=str)
def test_any_times_that_a_mac_may_tell_are_drawn(most: float, width: int) -> None:
    stages = tuple(
        StageTrace(
            mac="m" * 32,
            index=index,
            turns=tuple(PhaseTurn(n, "step", most * n, most, ((n, most), (1, most)), n) for n in range(6)),
            ahead_s=-most * index,
            error_s=most,
        )
        for index in range(8)
    )
    told = TraceResult(model="m" * 90, seconds=1.0, stages=stages)
    steps = steps_in(told)
    drawn = bars_content(told, steps, 5, width).plain.split("\n")
    if width >= 58:
        assert max(map(cell_len, drawn[:-2])) <= width  # the legend and the sentence wrap where they are too long
        assert max(map(cell_len, phases_content(told, 0, width).plain.split("\n"))) <= width
        assert cell_len(title_content(told, steps, 5, width).plain) == width


def test_it_says_why_there_is_nothing_and_what_to_do() -> None:
    table = [
        (Snapshot(), False, False, "retrying"),
        (Snapshot(), True, False, "Ctrl+O chooses one"),
        (READY, True, False, "Ask something"),
        (msgspec.structs.replace(READY, batch=Batch(rows=(BatchRow(request_id="a" * 32),))), True, False, "first step"),
        (RUNNING, True, True, "Tracing 2 stages of m"),
    ]
    for now, attached, tracing, says in table:
        assert says in why_empty(now, attached=attached, tracing=tracing).plain


class TracedNode(StillNode):
    """A node with these answers to traces in turn; `asked` has the length of each."""

    def __init__(self, snapshot: Snapshot, *replies: TraceResult | NotLoaded) -> None:
        super().__init__(snapshot)
        self.replies, self.asked = list(replies), list[float]()

    async def trace(self, wanted: TraceRequest) -> TraceResult:
        self.asked.append(wanted.seconds)
        reply = self.replies.pop(0)
        if isinstance(reply, NotLoaded):
            raise reply
        return reply


async def opened(node: TracedNode, pilot: Pilot[None]) -> MaclusterApp:
    app = cast(MaclusterApp, pilot.app)
    while not app.state.attached:
        await pilot.pause(0.01)
    await pilot.press("escape", "B", "enter")
    assert isinstance(app.screen, TimelineScreen)
    await pilot.pause()
    return app


@pytest.mark.parametrize(
    "size", [pytest.param((120, 36), id="wide"), pytest.param((80, 24), id="narrow", marks=pytest.mark.nightly)]
)
@pytest.mark.slow
async def test_an_answer_that_runs_is_traced_and_keys_go_through_its_steps(size: tuple[int, int]) -> None:
    node: Any = TracedNode(RUNNING, told_of(0), told_of(12))
    async with MaclusterApp(node).run_test(size=size) as pilot:
        app = await opened(node, pilot)
        while "12 of 12" not in text_of(app):
            await pilot.pause(0.01)
        assert node.asked == [0.5, 1.0]  # in half a second no step was whole
        for key, seen in {"right": "12 of 12", "left": "11 of 12", "H": "1 of 12", "L": "11 of 12"}.items():
            await pilot.press(key)
            await pilot.pause()
            assert f"· {seen}" in text_of(app)
        assert "b ±0.20 ms" in text_of(app)
        for key, seen in {"down": "lane 1 went on a", "k": "time of this step", "up": "lane 2 went on b"}.items():
            await pilot.press(key)
            await pilot.pause()
            assert seen in text_of(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, TimelineScreen)


async def test_without_an_answer_nothing_is_traced_and_a_failure_is_told_once() -> None:
    node: Any = TracedNode(READY)
    async with MaclusterApp(node).run_test(size=(80, 24)) as pilot:
        app = await opened(node, pilot)
        assert "Ask something" in text_of(app)
        await pilot.press("r", "left")
        assert [note.message.partition(":")[0] for note in app._notifications] == [
            "No answer is running. Ask something first.",
            "Nothing has been traced yet.",
        ]
        node.replies = [NotLoaded("This Mac leads no model that is ready.", "Load one.")]
        app.set_state(msgspec.structs.replace(app.state, snapshot=RUNNING))
        while not node.asked:
            await pilot.pause(0.01)
        await pilot.pause()
        app.set_state(app.state)
        await pilot.pause()
        assert len(node.asked) == 1
        assert any("leads no model" in note.message for note in app._notifications), app._notifications
        assert "r tries again" in text_of(app)
