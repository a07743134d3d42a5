"""One hop as figures and as text: phases, spread, the gain of a cable, the chart, and older points."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.errors import Busy
from core.events import HopSample, PathKind, Peer, Progress, Snapshot
from core.requests.checks import PathFigures, SpeedRequest, SpeedResult
from tests.support.app import StillNode, text_of
from tests.support.screen_events import PLAN
from tests.support.waiting import until
from tui.app import MaclusterApp
from tui.screens.hop import HopScreen
from tui.state import state
from tui.state.hop_history import HOP_WINDOW_S, PAST_S, HopPoint, faded, last_of
from tui.state.hop_phases import CABLE_RTT_S, phases_of, points_of, spread_of, worth_of
from tui.state.hops import Hop, ring_of
from tui.state.state import UiState
from tui.widgets.hop_details import (
    ROWS,
    SpeedTest,
    bar_rows,
    chart_content,
    phases_content,
    ring_content,
    speed_content,
    title_content,
    window_word,
    worth_content,
)
from tui.widgets.hop_table import hops_content, slowest_words

NOW = 1000.0
PEERS = tuple(
    Peer(
        device_id=n.upper(), name=n, trust="paired", state="connected", is_self=n == "a", address=f"192.168.1.{i}:4717"
    )
    for i, n in enumerate("ab")
)
PATHS = (PathFigures(kind="Thunderbolt", rtt_s=0.00031, bytes_per_s=3 * 10**8), PathFigures(kind="Wi-Fi", rtt_s=0.0041))
FOUND = SpeedResult(
    source="A",
    target="B",
    rtt_s=0.0062,
    rtt_min_s=0.005,
    round_trips=20,
    loaded_rtt_s=0.03,
    frames=170,
    bytes=8_000_000,
    seconds=0.8,
)
BESIDE = msgspec.structs.replace(FOUND, answering=True)


def sample(source: str, target: str, frames: int, rtt_s: float | None, wait_s: float) -> HopSample:
    """Sums of a hop; a frame takes 10 ms to compute, 1 to pack, 2 to seal, 3 to send, 4 to open, `wait` to arrive."""
    return HopSample(
        source=source,
        target=target,
        frames=frames,
        bytes=1000 * frames,
        compute_s=0.010 * frames,
        codec_s=0.001 * frames,
        seal_s=0.002 * frames,
        send_s=0.003 * frames,
        wait_s=wait_s * frames,
        open_s=0.004 * frames,
        rtt_s=rtt_s,
    )


def ringed(rtt_s: float | None = 0.0062) -> UiState:
    """State of two Macs with a slow hop there and a fast one back, after 12 tokens."""
    now = UiState(snapshot=Snapshot(peers=PEERS, plan=PLAN, plan_status="ready"), attached=True)
    for frames in (2, 12):
        now = state.fold(now, sample("A", "B", frames, rtt_s, 0.030), NOW - 12 + frames)
        now = state.fold(now, sample("B", "A", frames, None if rtt_s is None else 0.0004, 0.040), NOW - 12 + frames)
    return now


@pytest.mark.parametrize("most", [0.0, 5e-324, 1e9], ids=str)
@pytest.mark.parametrize("count", [0, 1, (1 << 53) - 1], ids=str)
def test_any_figures_that_a_mac_may_tell_are_drawn(most: float, count: int) -> None:
    times = dict.fromkeys(["compute_s", "codec_s", "seal_s", "send_s", "wait_s", "open_s", "wire_s"], most)
    figures: Any = {**times, "rtt_s": min(most, 3600.0), "bytes": count, "queue": count}
    now = UiState(snapshot=Snapshot(peers=PEERS, plan=PLAN, plan_status="ready"), attached=True)
    for at, frames in enumerate((0, 1, count, max(0, count - 1))):
        for source, target in (("A", "B"), ("B", "A")):
            now = state.fold(now, HopSample(source=source, target=target, frames=frames, **figures), NOW + at)
    ring = ring_of(now)
    for hop in ring.hops:
        found = points_of(now, hop.pair, NOW + 4, HOP_WINDOW_S)
        drawn = [phases_content(hop, found, 60), chart_content(now, ring, hop, NOW + 4, HOP_WINDOW_S, 60)]
        drawn += [ring_content(now, ring, hop, NOW + 4, HOP_WINDOW_S, 60), worth_content(ring, hop, SpeedTest())]
        drawn.append(title_content(now, ring, hop, SpeedTest(), 60))
        assert all(text.plain or text is drawn[3] for text in drawn)
    assert hops_content(now, 44, NOW + 4).plain


def first(now: UiState) -> Hop:
    return ring_of(now).hops[0]


def point(at: float, seconds: float, frames: int = 1, *, prefill: bool = False) -> HopPoint:
    return HopPoint(
        source="A",
        target="B",
        at=at,
        frames=frames,
        bytes=10 * frames,
        compute_s=0.0,
        seal_s=0.0,
        wire_s=seconds * frames,
        source_s=0.0,
        target_s=0.0,
        first=prefill,
    )


def test_the_phases_of_a_frame_are_those_of_the_trace() -> None:
    found = phases_of(points_of(ringed(), ("A", "B"), NOW, HOP_WINDOW_S))
    assert found
    expected = (0.010, 0.001, 0.002, 0.003, 0.0031, 0.004, 0.030, 1000, 10)
    assert found == pytest.approx(expected), "the prefill's frames are larger: they are left out"
    hop_s = found.codec_s + found.seal_s + found.send_s + found.wire_s + found.open_s
    assert hop_s == pytest.approx(0.0131)
    assert first(ringed()).transfer_s == pytest.approx(hop_s), "the pane and the screen say the same"


def test_without_points_nothing_is_made_up() -> None:
    assert phases_of([]) is None
    assert spread_of([]) is None
    now = UiState(snapshot=Snapshot(peers=PEERS, plan=PLAN, plan_status="ready"), attached=True)
    hop = first(now)
    assert "Times appear" in phases_content(hop, [], 60).plain
    assert "No traffic in this period" in chart_content(now, ring_of(now), hop, NOW, 60, 60).plain
    assert worth_content(ring_of(now), hop, SpeedTest()).plain == ""
    assert "–" in ring_content(now, ring_of(now), hop, NOW, 60, 60).plain


@pytest.mark.parametrize(
    ("times", "spread"),
    [
        pytest.param([5], (5, 5, 5), id="one"),
        pytest.param([3, 1, 2], (2, 3, 3), id="three"),
        pytest.param(list(range(1, 101)), (50, 95, 100), id="a hundred"),
    ],
)
def test_percentiles_are_nearest_ranks(times: list[int], spread: tuple[int, int, int]) -> None:
    assert spread_of([point(NOW, time) for time in times]) == pytest.approx(spread)


def test_a_cable_saves_half_of_the_round_trip_that_it_makes_shorter() -> None:
    now = ringed()
    ring = ring_of(now)
    found = worth_of(ring, first(now).rtt_s)
    assert ring.shares
    assert found
    assert found.saved_s == pytest.approx((0.0062 - CABLE_RTT_S) / 2)
    assert found.gain == pytest.approx(found.token_s / (found.token_s - found.saved_s) - 1)
    said = worth_content(ring, first(now), SpeedTest()).plain
    assert "With a cable (0.50 ms round trip instead of 6.2 ms) this hop would save 2.9 ms" in said
    assert f"+{100 * found.gain:.0f} % tok/s" in said


@pytest.mark.parametrize(
    ("rtt_s", "test", "said"),
    [
        pytest.param(0.0006, SpeedTest(), "A cable wouldn't help", id="a cable already"),
        pytest.param(None, SpeedTest(), "the round trip isn't measured yet", id="not known"),
        pytest.param(None, SpeedTest(result=FOUND), "instead of 6.2 ms", id="the test knows it"),
        pytest.param(
            0.0062,
            SpeedTest(result=msgspec.structs.replace(FOUND, rtt_s=0.0004)),
            "A cable wouldn't help",
            id="the test knows better",
        ),
    ],
)
def test_what_a_cable_is_worth_is_said_only_where_it_is_known(rtt_s: float | None, test: SpeedTest, said: str) -> None:
    now = ringed(rtt_s)
    assert said in worth_content(ring_of(now), first(now), test).plain


def test_a_token_cannot_save_more_than_its_whole_wire() -> None:
    ring = ring_of(ringed())
    found = worth_of(ring, 9.0)
    assert ring.shares
    assert found
    assert found.saved_s == ring.shares.wire_s < found.token_s


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        pytest.param([None], [" "] * ROWS, id="nothing"),
        pytest.param([0.0], [" "] * 4 + ["▁"], id="a zero is seen"),
        pytest.param([1.0], ["█"] * ROWS, id="the top"),
        pytest.param([9.0], ["█"] * ROWS, id="beyond it"),
        pytest.param([0.5], [" ", " ", "▄", "█", "█"], id="the middle"),
        pytest.param([0.2, None], [" " * 2] * 4 + ["█ "], id="a row"),
    ],
)
def test_bars_of_five_rows(values: list[float | None], rows: list[str]) -> None:
    assert bar_rows(values, 1.0) == rows


@pytest.mark.parametrize("width", [54, 61, 76, 118])
def test_nothing_is_wider_than_its_place(width: int) -> None:
    now = ringed()
    ring, hop = ring_of(now), first(now)
    points = points_of(now, hop.pair, NOW, 60)
    assert title_content(now, ring, hop, SpeedTest(), width).cell_length == width
    for content in (phases_content(hop, points, width), ring_content(now, ring, hop, NOW, 60, width)):
        assert all(line.cell_length <= width for line in content.split("\n"))
    for line in chart_content(now, ring, hop, NOW, 600, width).split("\n")[: ROWS + 1]:
        assert line.cell_length <= width


def test_all_hops_share_one_scale() -> None:
    now = ringed()
    ring = ring_of(now)
    heads = [chart_content(now, ring, hop, NOW, 60, 60).plain.split("┤")[0].strip() for hop in ring.hops]
    assert heads == ["20 ms", "20 ms"], "13 ms and 10 ms"


def test_the_title_says_what_is_known_as_far_as_there_is_room() -> None:
    now = ringed()
    ring, hop = ring_of(now), first(now)
    assert title_content(now, ring, hop, SpeedTest(), 80).plain.endswith("192.168.1.1 · rtt 6.2 ms · TLS 1.3 + seal ")
    assert "TLS" not in title_content(now, ring, hop, SpeedTest(), 30).plain
    assert "Wi-Fi" not in title_content(now, ring, hop, SpeedTest(), 200).plain, "nobody has looked at the link"
    told = SpeedTest(result=msgspec.structs.replace(FOUND, via="Wi-Fi (en0)"))
    assert "192.168.1.1 · Wi-Fi (en0) · rtt" in title_content(now, ring, hop, told, 120).plain
    assert title_content(now, ring, None, SpeedTest(), 20).plain.strip() == "Hop details"


def test_what_leaves_the_last_minute_is_kept_in_fewer_points() -> None:
    now = UiState(points=tuple(point(NOW + i / 2, 0.001 * (i + 1), frames=2) for i in range(40)))
    now = state.ticked(now, NOW + 60 + 15)
    assert (len(now.points), len(now.past)) == (10, 2)
    assert sum(p.frames for p in (*now.past, *now.points)) == 80
    assert now.past[0].transfer_s / now.past[0].frames == pytest.approx(0.0105), "the mean of 1 to 20 ms"
    longer = points_of(now, ("A", "B"), NOW + 75, 600)
    assert len(longer) == 12
    assert len(points_of(now, ("A", "B"), NOW + 75, HOP_WINDOW_S)) == 10
    assert faded(now.past, (), NOW + PAST_S + 60) == ()


def test_the_figures_of_an_answer_stay_until_there_are_newer_ones() -> None:
    before = ringed()
    now = state.ticked(before, NOW + 10 * HOP_WINDOW_S)
    assert now.points == ()
    assert ring_of(now).shares == ring_of(before).shares
    assert phases_of(last_of(now.past, first(now).pair)) == phases_of(points_of(before, ("A", "B"), NOW, HOP_WINDOW_S))


def test_what_is_kept_is_bounded() -> None:
    past: tuple[HopPoint, ...] = ()
    for second in range(0, 3 * int(PAST_S), 5):
        past = faded(past, (point(NOW + second, 0.001),), NOW + second)
    assert len(past) <= PAST_S / 10 + 1


@pytest.mark.parametrize(("seconds", "word"), [(60.0, "60 s"), (600.0, "10 min"), (3600.0, "1 h")])
def test_windows_have_words(seconds: float, word: str) -> None:
    assert window_word(seconds) == word


@pytest.mark.parametrize(
    ("test", "said"),
    [
        pytest.param(SpeedTest(), "s tests the speed", id="none yet"),
        pytest.param(SpeedTest(is_running=True), "95 of 190  Esc: stop", id="runs"),
        pytest.param(SpeedTest(problem=Busy("One runs.").problem), "✗ Speed test failed: One runs.", id="refused"),
        pytest.param(SpeedTest(result=FOUND), "10 MB/s · 6.2 ms round trip (min 5.0 ms)", id="found"),
        pytest.param(
            SpeedTest(result=msgspec.structs.replace(FOUND, answering=True)),
            "An answer was being",
            id="beside an answer",
        ),
        pytest.param(
            SpeedTest(result=msgspec.structs.replace(FOUND, paths=PATHS)),
            "Networks: Thunderbolt 0.31 ms, 2400 Mbit/s; Wi-Fi 4.10 ms",
            id="by two networks",
        ),
    ],
)
def test_the_speed_test_is_said_in_every_state(test: SpeedTest, said: str) -> None:
    progress = Progress(task="speed test", done=95, total=190)
    assert said in speed_content(test, progress, 60).plain


async def test_all_of_a_speed_test_is_seen_where_there_is_little_room() -> None:
    class Tested(StillNode):
        async def test_speed(self, wanted: SpeedRequest) -> SpeedResult:
            return msgspec.structs.replace(FOUND, paths=(*PATHS, PathFigures(kind="Ethernet", rtt_s=0.0006)))

    app = MaclusterApp(Tested(Snapshot(peers=PEERS, plan=PLAN, plan_status="ready")))  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: app.state.attached)
        app.open_screen("hop")
        await until(lambda: isinstance(app.screen, HopScreen))
        await pilot.press("s")
        await until(lambda: "Ethernet 0.60 ms" in text_of(app))


def test_progress_of_a_test_is_kept_for_the_screen() -> None:
    now = state.fold(UiState(), Progress(task="speed test", done=3, total=190), NOW)
    assert now.speed_test
    assert now.speed_test.done == 3
    assert state.fold(UiState(), Progress(task="prefill", done=3, total=190), NOW).speed_test is None


@pytest.mark.parametrize("path", ["Wi-Fi", "Ethernet", "Thunderbolt"])
def test_the_path_that_a_hop_takes_is_named_and_no_cable_is_advised_where_there_is_one(path: PathKind) -> None:
    before = ringed()
    now = state.fold(before, msgspec.structs.replace(sample("A", "B", 12, 0.0062, 0.03), path=path), NOW)
    ring, hop = ring_of(now), first(now)
    assert f"192.168.1.1 · {path} · rtt" in title_content(now, ring, hop, SpeedTest(), 120).plain
    assert slowest_words(ring).startswith(f"slowest: a→b · {path} · rtt")
    assert ("this hop would save" in worth_content(ring, hop, SpeedTest()).plain) is (path != "Thunderbolt")
