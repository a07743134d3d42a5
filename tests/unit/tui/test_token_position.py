"""The shares of a token's time, and the token's position."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from core.events import Batch, BatchRow, HopSample, Parallelism, PlanProposed, Snapshot
from tests.support.app import app_with
from tests.support.planning import REVERSE
from tui.state import state
from tui.state.hops import Ring, ring_of
from tui.state.state import UiState
from tui.widgets.hop_table import hops_content, percent, slowest_words
from tui.widgets.layer_bar import layer_bar, part_starts
from tui.widgets.token_bar import ROUND_S, RingTrip, TokenBar, position_of, ring_trip_of, token_bar_content

RING = ("HEAD", "B", "C")


def hop(index: int, frames: int, **ms: float) -> HopSample:
    """The sums of a hop after `frames` frames with these milliseconds each."""
    fields = {f"{name}_s": each / 1e3 * frames for name, each in ms.items()}
    still = HopSample(
        source=RING[index],
        target=RING[(index + 1) % len(RING)],
        frames=frames,
        bytes=100 * frames,
        compute_s=0,
        codec_s=0,
        seal_s=0,
        send_s=0,
        wait_s=0,
        open_s=0,
        rtt_s=0.002,
    )
    return msgspec.structs.replace(still, **fields)


def measured(*, wait_ms: float = 50.0, slow_ms: float = 1.0) -> UiState:
    """A ring whose Macs compute 10, 20 and 20 ms for a token."""
    now = state.fold(UiState(snapshot=Snapshot()), PlanProposed(plan=REVERSE), 0.0)
    for frames in (4, 40):
        now = state.fold(now, hop(0, frames, compute=10, codec=0.5, send=1), frames)
        now = state.fold(now, hop(1, frames, compute=20, seal=0.5, send=1, wait=5), frames)
        now = state.fold(now, hop(2, frames, compute=20, open=0.5, send=slow_ms, wait=wait_ms), frames)
    return now


def test_the_shares_are_what_the_first_mac_measured_and_the_rest_is_waiting() -> None:
    # it computes 10, packs 0.5, sends 1, waits 50 and opens 0.5 ms
    shares = ring_of(measured()).shares
    assert shares
    assert shares.token_s == pytest.approx(0.062)
    assert (shares.compute_s, shares.seal_s, shares.wire_s) == pytest.approx((0.05, 0.0015, 0.006))
    assert shares.wait_s == pytest.approx(0.0045)


def test_ranks_compute_at_the_same_time_and_nothing_travels_from_one_to_the_next() -> None:
    how = Parallelism(choice="tp", strategy="tp", reason="r")
    now = state.fold(measured(), PlanProposed(plan=msgspec.structs.replace(REVERSE, parallelism=how)), 50.0)
    for index in range(len(RING)):
        for frames in (4, 40):
            now = state.fold(now, hop(index, frames, compute=10 * (index + 1), wait=5), 50.0 + frames)
    ring = ring_of(now)
    assert ring.shares
    assert ring.shares.compute_s == pytest.approx(0.03)
    assert "compute+reduce " in hops_content(now, 60, 100.0).plain
    assert ring_trip_of(msgspec.structs.replace(REVERSE, parallelism=how), ring) is None


def test_an_estimate_never_makes_a_token_longer_than_it_was() -> None:
    shares = ring_of(measured(wait_ms=41.0)).shares
    assert shares
    assert shares.token_s == pytest.approx(0.053)
    assert shares.wire_s == pytest.approx(0.0015)
    assert shares.wait_s == 0


def test_the_slowest_hop_is_named_only_if_it_is_clearly_slower() -> None:
    even, uneven = ring_of(measured()), ring_of(measured(slow_ms=9.0))
    assert even.slowest is None
    assert uneven.slowest
    assert uneven.slowest.label == "c→head"
    assert slowest_words(even) == ""
    assert slowest_words(ring_of(measured(slow_ms=9.0))).startswith("slowest: c→head")


def test_shares_are_words_and_add_up_to_the_token() -> None:
    lines = hops_content(measured(), 44, 50.0).plain.splitlines()
    assert lines[-2].startswith("token 62.0 ms: ▇▇")
    assert cell_len(lines[-2]) == 44
    assert lines[-1] == "compute 81% encrypt 2% net 10% wait 7%"
    assert (percent(0.001, 1), percent(0, 1)) == ("<1%", "0%")


def test_rows_that_take_turns_are_told_and_no_waiting_is_made_up() -> None:
    rows = tuple(BatchRow(request_id=f"r{n}", state="writing") for n in range(8))
    now = state.fold(measured(), Batch(rows=rows), 50.0)
    spent = ring_of(now).shares
    assert spent
    assert spent.wait_s is None
    assert "step of 8 rows 57.5 ms: " in hops_content(now, 44, 50.0).plain
    assert "wait" not in hops_content(now, 44, 50.0).plain


def test_a_journey_goes_through_the_layers_whatever_the_ring() -> None:
    trip = ring_trip_of(REVERSE, ring_of(measured()))
    assert trip
    assert [leg[0] for leg in trip.legs] == pytest.approx([0.02, 0.02, 0.01])
    assert trip.slowed == 50
    assert trip.round_s >= ROUND_S
    assert ring_trip_of(REVERSE, Ring((), None, 1)) is None
    assert ring_trip_of(msgspec.structs.replace(REVERSE, stages=REVERSE.stages[:1]), ring_of(measured())) is None


LEGS = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=6).map(tuple)


@given(LEGS, st.floats(0, 1), st.integers(1, 1000))
def test_the_token_is_at_one_place_until_it_is_round(
    legs: tuple[tuple[float, float], ...], part: float, slowed: int
) -> None:
    trip = RingTrip(legs, slowed)
    at = position_of(trip, part * trip.round_s)
    if at is not None:
        assert 0 <= at.part < 1
        assert legs[at.owner][at.is_hop] > 0
    assert position_of(trip, trip.round_s * 1.01 + 1e-9) is None


def test_each_place_takes_its_share_of_the_round() -> None:
    trip = RingTrip(((0.03, 0.01), (0.05, 0.01)), 20)
    places = [position_of(trip, 0.02 * n) for n in range(100)]
    counted = [
        sum(p is not None and (p.owner, p.is_hop) == at for p in places) for at in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    assert counted == pytest.approx([30, 10, 50, 10], abs=1)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(20, 90), LEGS, st.floats(0, 1))
def test_the_bar_is_as_wide_as_asked_wherever_the_token_is(
    layers: list[int], width: int, legs: tuple[tuple[float, float], ...], part: float
) -> None:
    at = position_of(RingTrip(legs, 1), part * sum(map(sum, legs)))
    at = at if at and at.owner < len(layers) else None
    plain = token_bar_content(layers, width, at).plain
    assert cell_len(plain) == width
    assert sum(plain.count(mark) for mark in "▸↩") == (at is not None and len(layers) > 1)
    assert cell_len(layer_bar(layers, width).plain) == width
    assert part_starts(layers, width)[-1] == width + 1


async def test_the_token_travels_only_while_an_answer_is_written_and_things_may_move() -> None:
    still = measured()
    ready = msgspec.structs.replace(still.snapshot, plan_status="ready")
    writing = msgspec.structs.replace(still, snapshot=msgspec.structs.replace(ready, running=("r1",)))
    app = app_with(Snapshot())
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        bar = app.dashboard.query_one(TokenBar)
        app.animation_level = "none"
        app.set_state(writing)
        assert bar.caption == ""
        app.animation_level = "full"
        app.set_state(writing)
        assert bar.caption == "▸ one token, 50× slow motion"
        app.set_state(msgspec.structs.replace(still, snapshot=ready))
        assert bar.caption == ""
