from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import LinkLost
from core.events import (
    AnyEvent,
    ApiServed,
    Batch,
    BatchLane,
    BatchRow,
    HopSample,
    LogLine,
    PairingChanged,
    Peer,
    PeerChanged,
    PeerGone,
    PeerSeen,
    PlanAdvice,
    PlanFailed,
    PlanLoaded,
    PlanProposed,
    PlanUnloaded,
    Progress,
    Recovery,
    RequestDone,
    RequestStarted,
    Snapshot,
    StageState,
    TokenEvent,
    TrustChanged,
    decode_event,
    encode_event,
)
from core.snapshot import LOG_LINES_KEPT, apply
from tests.support.plans import mac_id, plan_of

PROBLEM = LinkLost("The cable is out.", "Plug it in.").problem


def peer(number: int, rtt_s: float | None = None) -> Peer:
    return Peer(device_id=mac_id(number), name=f"mac{number}", rtt_s=rtt_s)


def hop(source: int, target: int, frames: int) -> HopSample:
    return HopSample(
        source=mac_id(source),
        target=mac_id(target),
        frames=frames,
        bytes=1,
        compute_s=0.0,
        codec_s=0.0,
        seal_s=0.0,
        send_s=0.0,
        wait_s=0.0,
        open_s=0.0,
    )


def done(request_id: str) -> RequestDone:
    return RequestDone(request_id=request_id, finish_reason="stop", prompt_tokens=1, tokens=2)


numbers = st.integers(0, 2)
ids = st.sampled_from(["r", "s"])
events: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(lambda n, s: PeerSeen(peer=peer(n, s)), numbers, st.sampled_from([None, 0.5])),
    st.builds(lambda n, s: PeerChanged(peer=peer(n, s)), numbers, st.sampled_from([None, 0.5])),
    st.builds(lambda n: PeerGone(device_id=mac_id(n), reason="It left."), numbers),
    st.builds(lambda n: TrustChanged(level="paired", weakest=f"mac{n}"), numbers),
    st.builds(lambda n: PlanProposed(plan=plan_of(n + 1)), numbers),
    st.just(PlanLoaded(plan_gen=100, seconds=1.0)),
    st.just(PlanFailed(plan_gen=100, problem=PROBLEM)),
    st.just(PlanUnloaded(plan_gen=100)),
    st.just(PlanAdvice(plan_gen=100, text="One Mac is faster.")),
    st.builds(lambda n, s: StageState(device_id=mac_id(n), status=s), numbers, st.sampled_from(["loading", "ready"])),
    st.builds(hop, numbers, numbers, st.integers(0, 9)),
    st.builds(lambda r: RequestStarted(request_id=r, prompt_tokens=1), ids),
    st.builds(done, ids),
    st.builds(lambda n: LogLine(at=0.0, level="INFO", source="a", text=f"{n}"), st.integers(0, 99)),
    st.builds(lambda r: TokenEvent(request_id=r, index=0, token=1, text="x"), ids),
    st.builds(lambda r: Progress(task="prefill", request_id=r), ids),
    st.builds(lambda r: Recovery(state="rebuild", text=".", requests=(r,)), ids),
    st.builds(lambda n: ApiServed(url=f"http://127.0.0.1:{n}/v1"), numbers),
    st.just(PairingChanged(state="failed", problem=PROBLEM)),
    st.builds(lambda r: Batch(rows=(BatchRow(request_id=r, state="writing", lane=1),)), ids),
)


def fold(now: Snapshot, history: list[AnyEvent]) -> Snapshot:
    for event in history:
        now = apply(now, event)
    return now


@given(st.lists(events, max_size=25), st.integers(0, 25))
def test_whoever_joins_late_sees_the_same_and_the_wire_changes_nothing(history: list[AnyEvent], joined: int) -> None:
    early = fold(Snapshot(version="1"), history)
    at_joining = fold(Snapshot(version="1"), history[:joined])
    wire = [decode_event(encode_event(e)) for e in [at_joining, *history[joined:]]]
    assert fold(Snapshot(), wire) == early
    assert len({p.device_id for p in early.peers}) == len(early.peers)
    assert len({(h.source, h.target) for h in early.hops}) == len(early.hops)
    assert len({s.device_id for s in early.stages}) == len(early.stages)


def test_a_hop_is_replaced_in_its_place() -> None:
    now = fold(Snapshot(), [hop(0, 1, 1), hop(1, 0, 2), hop(0, 1, 3)])
    assert [(h.source, h.target, h.frames) for h in now.hops] == [(mac_id(0), mac_id(1), 3), (mac_id(1), mac_id(0), 2)]


def test_what_is_no_part_of_the_snapshot_leaves_it_as_it_is() -> None:
    now = Snapshot(version="1", peers=(peer(0),))
    for event in (TokenEvent(request_id="r", index=0, token=1, text="x"), Progress(task="prefill"), now):
        assert apply(now, event) is now
    assert apply(now, PeerGone(device_id=mac_id(5), reason="Nobody knew it.")) == now
    assert apply(now, done("nobody asked")).running == ()


def test_a_plan_from_proposal_to_unloading() -> None:
    now = fold(Snapshot(), [hop(0, 1, 1), PlanFailed(plan_gen=1, problem=PROBLEM), PlanProposed(plan=plan_of(2))])
    assert (now.plan_status, now.plan_problem, now.hops) == ("loading", None, ())
    assert [(s.device_id, s.status) for s in now.stages] == [(mac_id(0), "waiting"), (mac_id(1), "waiting")]
    ready = apply(now, PlanLoaded(plan_gen=100, seconds=1.0))
    assert ready.plan_status == "ready"
    advised = apply(ready, PlanAdvice(plan_gen=100, text="One Mac is faster."))
    assert (advised.advice, apply(advised, PlanProposed(plan=plan_of(1))).advice) == ("One Mac is faster.", "")
    broken = apply(ready, PlanFailed(plan_gen=100, problem=PROBLEM))
    assert (broken.plan_status, broken.plan_problem, broken.plan) == ("broken", PROBLEM, ready.plan)
    empty = apply(broken, PlanUnloaded(plan_gen=100))
    assert (empty.plan, empty.plan_status, empty.plan_problem, empty.stages, empty.hops) == (None, "none", None, (), ())


def test_rows_stand_in_the_batch_from_their_start_to_their_end() -> None:
    started: list[AnyEvent] = [RequestStarted(request_id=name, prompt_tokens=3) for name in "rs"]
    waiting = (BatchRow(request_id="r", prompt_tokens=3), BatchRow(request_id="s", prompt_tokens=3))
    now = fold(Snapshot(plan_status="ready"), started)
    assert now.batch == Batch(rows=waiting)
    told = Batch(
        rows=(BatchRow(request_id="r", state="writing", written=2, lane=1), waiting[1]), lanes=(BatchLane(rows=1),)
    )
    assert apply(now, told).batch == told
    ended = apply(apply(now, told), done("r")).batch
    assert ended.rows == waiting[1:]


def test_rows_wait_and_nothing_is_on_the_ring_while_the_plan_does_not_run() -> None:
    row = BatchRow(request_id="r", state="writing", prompt_tokens=3, written=2, lane=1)
    told = Batch(rows=(row,), lanes=(BatchLane(rows=1, in_flight=True),), chunks=1, used_tokens=5, parked_tokens=7)
    now = apply(Snapshot(plan_status="ready"), told)
    halted = Batch(rows=(BatchRow(request_id="r", prompt_tokens=3, written=2),))
    for event in (
        Recovery(state="hold", text="."),
        PlanProposed(plan=plan_of(2)),
        PlanFailed(plan_gen=1, problem=PROBLEM),
        PlanUnloaded(plan_gen=1),
    ):
        assert apply(now, event).batch == halted
    assert apply(now, Recovery(state="suspect", text=".")).batch == told


def test_only_the_last_lines_of_the_log_are_kept() -> None:
    lines = [LogLine(at=float(n), level="INFO", source="a", text=f"{n}") for n in range(LOG_LINES_KEPT + 7)]
    assert fold(Snapshot(), [*lines]).logs == tuple(lines[7:])


def test_lines_of_another_mac_stand_at_their_time_and_never_before_what_it_wrote_earlier() -> None:
    told = [("a", 1.0), ("a", 4.0), ("b", 2.0), ("b", 3.0), ("a", 2.5), ("b", 0.0), ("c", 3.5)]
    now = fold(Snapshot(), [LogLine(at=at, level="INFO", source=mac, text=f"{at}") for mac, at in told])
    order = [("a", 1.0), ("b", 2.0), ("b", 3.0), ("b", 0.0), ("a", 4.0), ("a", 2.5), ("c", 3.5)]
    assert [(line.source, line.at) for line in now.logs] == order


@pytest.mark.promise("P30")
def test_a_mac_that_tells_without_end_hides_no_line_of_another() -> None:
    def line(mac: str, number: int) -> LogLine:
        return LogLine(at=float(number), level="INFO", source=mac, text=f"{number}")

    few = [line("a", n) for n in range(40)]
    now = fold(Snapshot(), [*few, *(line("b", n) for n in range(3 * LOG_LINES_KEPT))])
    assert [x for x in now.logs if x.source == "a"] == few
    assert len(now.logs) == LOG_LINES_KEPT
