"""The node learns from its own answers and loads: only from meaningful ones, and over restarts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from core.events import (
    AnyEvent,
    HopSample,
    Parallelism,
    Plan,
    PlanLoaded,
    PlanProposed,
    Prefill,
    Progress,
    Recovery,
    RecoveryState,
    RequestDone,
    RequestStarted,
    StageState,
    TokenEvent,
)
from core.models.files.cache_size import CacheSize
from core.models.files.layout import Layout
from core.models.files.sharding import Sharding
from core.node.ring.speed_measurements import LEAST_TOKENS
from core.node.ring.throughput_history import DIGITS, MOST_CURVES, ThroughputHistory, read_curves, write_curves
from core.plan.cost_curve import MOST_POINTS, MOST_TIMES, Curves, Point, curve_name, point_of
from core.plan.forecast import MacSpeeds, forecast, plan_work_of, shape_of
from core.trust.private_files import MAX_PRIVATE_FILE
from tests.support.home_files import in_format
from tests.support.plans import mac_id, plan_of

A, B = mac_id(0), mac_id(1)
RING = plan_of(2)
LAYOUT = Layout(
    layers=RING.layers,
    layer_bytes=(1000,) * RING.layers,
    token_bytes=(1000,) * RING.layers,
    embed_bytes=0,
    output_bytes=0,
    tied=False,
    caches=(CacheSize(),) * RING.layers,
    sharding=Sharding(reduces=2 * RING.layers, hidden_bytes=128),
)
READS = {s.device_id: 1000 * (s.stop - s.start) for s in RING.stages}
COMPUTE_S = {A: 0.010, B: 0.030}
CHUNK_S, OWN_S, TRIP_S, FRAME = 0.5, 0.001, 0.004, 64


def sums(tokens: int, chunks: int) -> list[HopSample]:
    """The ring's sums after `tokens` steps of one answer and `chunks` chunks of its prompt."""
    frames = tokens + chunks
    return [
        HopSample(
            source=source,
            target=target,
            frames=frames,
            bytes=FRAME * tokens + 100 * FRAME * chunks,
            compute_s=COMPUTE_S[source] * tokens + CHUNK_S * chunks,
            codec_s=0.0,
            seal_s=OWN_S * frames,
            send_s=0.0,
            wait_s=1.0,
            open_s=0.0,
            rtt_s=TRIP_S,
        )
        for source, target in ((A, B), (B, A))
    ]


def answer(name: str = "r", tokens: int = 20, token_s: float = 0.05) -> Iterator[AnyEvent]:
    """Events of an answer after 100 prompt tokens in one chunk; samples come after the chunk and at the end."""
    yield RequestStarted(request_id=name, prompt_tokens=101)
    yield Progress(task="prefill", request_id=name, done=100, total=101, unit="tokens")
    yield from sums(0, 1)
    for index in range(tokens):
        yield TokenEvent(request_id=name, index=index, token=index, text="")
    yield from sums(tokens, 1)
    rate = 1 / token_s
    yield RequestDone(
        request_id=name, finish_reason="stop", prompt_tokens=101, tokens=tokens, ttft_s=1.0, decode_tokens_per_s=rate
    )


def loaded(path: Path, plan: Plan = RING) -> ThroughputHistory:
    paces = ThroughputHistory(path)
    paces.about(plan.fingerprint, LAYOUT)
    paces.handle_event(PlanProposed(plan=plan), 0.0)
    return paces


def heard(paces: ThroughputHistory, *events: AnyEvent) -> Curves:
    for event in events:
        paces.handle_event(event, 100.0)
    return paces.curves


def test_an_answer_tells_of_every_stage_of_every_hop_and_of_the_head(tmp_path: Path) -> None:
    curves = heard(loaded(tmp_path / "p"), *answer())
    for mac in (A, B):
        assert only(curves, "token", mac) == pytest.approx([READS[mac], COMPUTE_S[mac]])
        assert prompt(curves, mac) == pytest.approx([READS[mac] * 100, CHUNK_S])
    there, back = (curves[curve_name("hop", *hop)] for hop in ((A, B), (B, A)))
    assert [point.amount for point in there] == pytest.approx([FRAME, 100 * FRAME])
    assert [point.amount for point in back] == [FRAME]  # a chunk returns only the word that it is read
    assert [point.seconds for point in (*there, *back)] == pytest.approx(3 * [OWN_S + TRIP_S / 2])
    rest_s = 0.05 - sum(COMPUTE_S.values()) - 2 * (OWN_S + TRIP_S / 2)
    assert only(curves, "lead", A) == pytest.approx([1, rest_s])


def test_all_that_was_learned_of_a_token_adds_up_to_the_time_that_it_took(tmp_path: Path) -> None:
    """The rest is less than half a round trip: the hops took less."""
    curves = heard(loaded(tmp_path / "p"), *answer(token_s=0.043))
    names = [curve_name("token", A), curve_name("token", B), curve_name("lead", A)]
    hops = [curves[curve_name("hop", *hop)][0].seconds for hop in ((A, B), (B, A))]
    assert sum(curves[name][0].seconds for name in names) + sum(hops) == pytest.approx(0.043)
    assert curves[curve_name("lead", A)][0].seconds == pytest.approx(0)


def slow(name: str, factor: float = 10.0) -> Iterator[AnyEvent]:
    """Like `answer`, but with longer compute times."""
    for event in answer(name, token_s=0.05 * factor):
        if isinstance(event, HopSample):
            yield msgspec.structs.replace(event, compute_s=event.compute_s * factor)
        else:
            yield event


def test_the_first_answer_of_new_workers_counts_where_nothing_is_known(tmp_path: Path) -> None:
    paces = loaded(tmp_path / "p")
    assert only(heard(paces, PlanLoaded(plan_gen=1, seconds=1.0), *slow("first")), "token", A)[1] == pytest.approx(
        10 * COMPUTE_S[A]
    )
    assert only(heard(paces, *answer("second")), "token", A)[1] == pytest.approx(COMPUTE_S[A])  # and no longer
    paces.handle_event(PlanProposed(plan=RING), 200.0)
    curves = heard(paces, PlanLoaded(plan_gen=2, seconds=1.0), *slow("first again"))
    assert only(curves, "token", A)[1] == pytest.approx(COMPUTE_S[A])


def test_an_answer_that_something_else_held_up_teaches_nothing_and_one_more_like_it_does(tmp_path: Path) -> None:
    paces = loaded(tmp_path / "p")
    heard(paces, PlanLoaded(plan_gen=1, seconds=1.0), *answer("first"), *answer("second"), *answer("third"))
    assert only(heard(paces, *slow("held up")), "token", A)[1] == pytest.approx(COMPUTE_S[A])
    assert only(heard(paces, *slow("slower now", 2.0)), "token", A)[1] == pytest.approx(2 * COMPUTE_S[A])


def test_a_plan_that_ran_takes_what_it_took_then_and_its_parts_in_proportion(tmp_path: Path) -> None:
    """Answers of a plan with other cuts give the Macs' figures, and nothing for this plan as a whole."""
    paces = loaded(tmp_path / "p")
    heard(paces, *answer("the very first"), *answer())
    first, second = RING.stages
    cut = first.stop - 1
    other = msgspec.structs.replace(
        RING,
        stages=(msgspec.structs.replace(first, stop=cut), msgspec.structs.replace(second, start=cut)),
    )
    paces.handle_event(PlanProposed(plan=other), 0.0)
    paces.handle_event(PlanLoaded(plan_gen=1, seconds=1.0), 0.0)
    assert curve_name("plan", shape_of(other)) not in heard(paces, *answer("the first", token_s=4.0))
    curves = heard(paces, *answer("slower", token_s=0.4), *answer("slower still", token_s=0.4))
    told, there = (
        forecast(plan_work_of(p, LAYOUT, (FRAME, FRAME), 0), MacSpeeds({}, lambda *_: None, curves))
        for p in (RING, other)
    )
    assert told is not None
    assert there is not None
    assert (told.token_s, there.token_s) == pytest.approx((0.05, 0.4))
    assert sum(told.stages_s) > 2 * sum(told.hops_s) > 0
    *events, done = answer()
    assert isinstance(done, RequestDone)
    long = msgspec.structs.replace(done, prompt_tokens=900, ttft_s=9.4)
    curves = heard(paces, *events, msgspec.structs.replace(long, beside_tokens=800), *events, long)
    there = forecast(plan_work_of(other, LAYOUT, (FRAME, FRAME), 0), MacSpeeds({}, lambda *_: None, curves))
    assert there is not None
    assert there.prompt_s == pytest.approx(9.35 * 1000 / 900, rel=0.01)


def test_what_guesses_saved_says_nothing_of_a_plan(tmp_path: Path) -> None:
    *events, done = answer()
    assert isinstance(done, RequestDone)
    guessed = msgspec.structs.replace(done, drafted_tokens=4, accepted_tokens=1)
    paces = loaded(tmp_path / "p")
    assert curve_name("plan", shape_of(RING)) not in heard(paces, *answer("first"), *events, guessed)
    assert only(heard(paces, *events, done), "plan", shape_of(RING), at=0) == [1, 0.05]


def test_what_a_head_adds_is_never_less_than_nothing(tmp_path: Path) -> None:
    """A file with a time below zero would count as damaged."""
    path = tmp_path / "p"
    for token_s in (0.043, 0.0421, 0.0439, 0.04):
        curves = heard(loaded(path), *answer(token_s=token_s))
        write_curves(path, curves)
        assert_kept(read_curves(path), curves)


def assert_kept(found: Curves, curves: Curves) -> None:
    """Check that both are equal, within the precision of a file."""
    assert found.keys() == curves.keys()
    for name, points in curves.items():
        kept = [figure for point in found[name] for figure in (point.amount, point.seconds, *point.times)]
        assert kept == pytest.approx([figure for p in points for figure in (p.amount, p.seconds, *p.times)])


def only(curves: Curves, *name: str, at: int | None = None) -> list[float]:
    """The only point of that kind and those Macs' curve, or the one `at` that place."""
    curve = curves[" ".join(name)]
    (point,) = curve if at is None else curve[at : at + 1]
    return [point.amount, point.seconds]


def prompt(curves: Curves, mac: str) -> list[float]:
    """The point of a prompt's chunk; a step is on that curve, too."""
    step, point = curves[curve_name("prompt", mac)]
    assert step == curves[curve_name("token", mac)][0]
    return [point.amount, point.seconds]


def without_tokens(events: Iterator[AnyEvent]) -> Iterator[AnyEvent]:
    return (event for event in events if not isinstance(event, TokenEvent))


def with_stale_figures(events: Iterator[AnyEvent]) -> Iterator[AnyEvent]:
    """The stages' figures are those of the prompt, as where the answer was cut off."""
    return (
        msgspec.structs.replace(event, compute_s=CHUNK_S) if isinstance(event, HopSample) else event for event in events
    )


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*answer(tokens=LEAST_TOKENS - 1)], id="too short"),
        pytest.param([*with_stale_figures(answer())], id="without figures of a step"),
        pytest.param([*without_tokens(answer())], id="without tokens"),
        pytest.param([RequestStarted(request_id="q", prompt_tokens=9), *answer()], id="beside another"),
        pytest.param(
            [*[*answer()][:9], RequestStarted(request_id="q", prompt_tokens=9), *[*answer()][9:]],
            id="joined by another",
        ),
        pytest.param([*[*answer()][:9], Recovery(state="hold", text="gone"), *[*answer()][9:]], id="interrupted"),
    ],
)
def test_what_says_nothing_of_a_token_is_not_learned(tmp_path: Path, events: list[AnyEvent]) -> None:
    assert not [name for name in heard(loaded(tmp_path / "p"), *events) if name.startswith("token")]


@pytest.mark.parametrize("state", ["suspect", "stuck", "running"])
def test_a_prompt_that_takes_so_long_that_it_is_asked_about_is_learned_like_any_other(
    tmp_path: Path, state: RecoveryState
) -> None:
    events = [*answer()]
    events.insert(2, Recovery(state=state, text="A step takes long."))
    assert heard(loaded(tmp_path / "p"), *events) == heard(loaded(tmp_path / "q"), *answer())


def test_a_head_with_the_last_layers_is_counted_from_its_first_token_on(tmp_path: Path) -> None:
    """It computes when the work is back, after the samples it sent with the chunk."""
    first, last = ((stage.start, stage.stop) for stage in RING.stages)
    stages = tuple(
        msgspec.structs.replace(stage, start=start, stop=stop)
        for stage, (start, stop) in zip(RING.stages, (last, first), strict=True)
    )
    ring = msgspec.structs.replace(RING, topology="reverse", stages=stages)
    assert heard(loaded(tmp_path / "p", ring), *answer()) == {}
    events = [*answer()]
    curves = heard(loaded(tmp_path / "q", ring), *events[:10], *sums(6, 1), *events[10:])
    assert only(curves, "token", A) == pytest.approx([READS[A], COMPUTE_S[A]])
    assert only(curves, "prompt", A) == only(curves, "token", A)
    assert prompt(curves, B) == pytest.approx([100 * READS[B], CHUNK_S])


def test_a_step_that_was_told_before_the_figures_of_the_prompt_is_taken_off_them(tmp_path: Path) -> None:
    started, read, *_, done = answer()
    tokens = [TokenEvent(request_id="r", index=index, token=index, text="") for index in range(20)]
    curves = heard(loaded(tmp_path / "p"), started, read, *tokens[:2], *sums(2, 1), *tokens[2:], *sums(20, 1), done)
    for mac in (A, B):
        assert only(curves, "token", mac) == pytest.approx([READS[mac], COMPUTE_S[mac]])
        assert prompt(curves, mac) == pytest.approx([READS[mac] * 100, CHUNK_S])


def test_one_mac_is_measured_by_the_clock_of_its_answers(tmp_path: Path) -> None:
    single = msgspec.structs.replace(plan_of(1), chunk=128)
    events = [event for event in answer() if not isinstance(event, HopSample)]
    curves, whole = heard(loaded(tmp_path / "p", single), *events), 1000 * single.layers
    assert only(curves, "token", A) == pytest.approx([whole, 0.05])
    assert prompt(curves, A) == pytest.approx([whole * 101, 1.0 - 0.05])


def test_a_prompt_that_a_mac_beside_the_ring_read_tells_of_that_mac_alone(tmp_path: Path) -> None:
    reader = msgspec.structs.replace(RING.stages[0], device_id=mac_id(2), start=0, stop=RING.layers)
    beside = msgspec.structs.replace(RING, prefill=Prefill(stage=reader, least=64, share=0.5), chunk=50)
    *events, done = answer()
    assert isinstance(done, RequestDone)
    curves = heard(loaded(tmp_path / "p", beside), *events, msgspec.structs.replace(done, beside_tokens=100))
    assert only(curves, "prompt", mac_id(2)) == pytest.approx([sum(READS.values()) * 50, (1.0 - 0.05) / 2])
    assert [only(curves, "prompt", mac)[0] for mac in (A, B)] == [READS[A], READS[B]]  # from steps alone


def test_ranks_tell_what_adding_up_takes_once_it_is_known_what_they_compute(tmp_path: Path) -> None:
    whole = [msgspec.structs.replace(stage, start=0, stop=RING.layers) for stage in RING.stages]
    asked = Parallelism(choice="tp", strategy="tp", reason="It was asked for.")
    ranks = msgspec.structs.replace(RING, topology="tensor", stages=tuple(whole), parallelism=asked)
    name = curve_name("reduce", A, "2")
    assert heard(loaded(tmp_path / "p", ranks), *answer()) == {}
    paces = loaded(tmp_path / "q")
    heard(paces, *answer())
    paces.handle_event(PlanProposed(plan=ranks), 0.0)
    curves = heard(paces, *answer(token_s=0.09))
    told = forecast(plan_work_of(ranks, LAYOUT, (4, 4), 0), MacSpeeds({}, lambda *_: None, curves))
    assert told is not None
    chunks = -(-101 // ranks.chunk)
    assert [point.amount for point in curves[name]] == pytest.approx([128, 128 * 101 / chunks])
    assert told.token_s == pytest.approx(0.09)
    assert told.reduces_s == pytest.approx(2 * RING.layers * curves[name][0].seconds)
    assert told.prompt_s == pytest.approx((1.0 - 0.09) / chunks * 1000 / ranks.chunk, rel=0.05)


def test_a_load_tells_what_each_mac_read_and_what_the_rest_took(tmp_path: Path) -> None:
    paces = loaded(tmp_path / "p")
    sizes = {s.device_id: s.weight_bytes for s in RING.stages}
    for at, mac, status in (
        (1.0, A, "loading"),
        (1.5, B, "loading"),
        (2.0, A, "loading"),
        (3.0, A, "linking"),
        (5.5, B, "linking"),
        (6.0, A, "ready"),
    ):
        paces.handle_event(StageState(device_id=mac, status=status), at)  # type: ignore[arg-type]
    paces.handle_event(PlanLoaded(plan_gen=RING.plan_gen, seconds=7.0), 7.0)
    assert paces.curves == {
        curve_name("load", A): (Point(sizes[A], 2.0, (2.0,)),),
        curve_name("load", B): (Point(sizes[B], 4.0, (4.0,)),),
        curve_name("join", A): (Point(1, 3.0, (3.0,)),),
    }


def test_a_head_that_read_the_whole_model_read_more_than_its_stage(tmp_path: Path) -> None:
    paces = loaded(tmp_path / "p")
    whole = 3 * RING.head.weight_bytes
    for at, total in ((1.0, RING.head.weight_bytes), (2.0, whole), (3.0, RING.head.weight_bytes)):
        paces.handle_event(StageState(device_id=A, status="loading", total_bytes=total), at)
    paces.handle_event(StageState(device_id=A, status="linking"), 4.0)
    paces.handle_event(PlanLoaded(plan_gen=RING.plan_gen, seconds=5.0), 5.0)
    assert only(paces.curves, "load", A) == [whole, 3.0]


def test_a_stage_that_was_read_before_it_could_be_told_is_counted_from_the_plan_on(tmp_path: Path) -> None:
    paces = loaded(tmp_path / "p")
    for mac in (A, B):
        paces.handle_event(StageState(device_id=mac, status="linking"), 1.5)
    paces.handle_event(PlanLoaded(plan_gen=RING.plan_gen, seconds=2.0), 2.0)
    assert [only(paces.curves, "load", mac)[1] for mac in (A, B)] == [1.5, 1.5]
    assert only(paces.curves, "join", A) == [1, 0.5]


def test_it_is_remembered_by_this_user_alone_and_a_damaged_file_is_no_reason_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "p"
    assert read_curves(path) == {}
    curves = heard(loaded(path), *answer())
    write_curves(path, curves)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert_kept(read_curves(path), curves)
    bare = b'{"token a": [[7, 2], [0, 1]], "token b": [[7, 2], [7, 3]]}'  # and unchanged without other times
    path.write_bytes(in_format(bare))
    assert read_curves(path) == {"token a": (Point(7, 2, (2,)),), "token b": (Point(7, 3, (3,)),)}
    for damaged in (
        b"",
        b"{",
        bare,
        in_format(b'{"token a": [[1]]}'),
        in_format(b'{"token a": [[1, -1]]}'),
        in_format(b'{"token a": [[1, 1e999]]}'),
        in_format(b'{"token a": [[1, 1, 1, 1, 1]]}'),
        in_format(b"[]"),
    ):
        path.write_bytes(damaged)
        assert read_curves(path) == {}
    path.chmod(0o644)
    assert read_curves(path) == {}


def test_the_file_stays_small_enough_to_be_read_again(tmp_path: Path) -> None:
    path, times = tmp_path / "p", tuple(float(f"{(n + 1) / 3e5:.{DIGITS}g}") for n in range(MOST_TIMES))
    points = tuple(point_of(float(f"{1.3**n * 1e15 / 7:.{DIGITS}g}"), times) for n in range(MOST_POINTS))
    full = {curve_name("hop", f"{n:026}", "b" * 26): points for n in range(MOST_CURVES)}
    write_curves(path, full)
    assert path.stat().st_size <= MAX_PRIVATE_FILE
    assert read_curves(path) == full
    assert len(heard(loaded(path), *answer())) == MOST_CURVES
