"""Frames of the engine, and their effect on a stage, as a hostile neighbour can send them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from core.engine.requests import Admit
from core.engine.ring_work import (
    Copy,
    Drop,
    Extend,
    Extract,
    Finalise,
    Keep,
    Merge,
    New,
    Op,
    PrepareRows,
    Restore,
    Trim,
)
from core.errors import ProtocolError, SessionError, StageFailed
from core.link.data_plane import Frame
from core.link.frames import FrameHeader, FrameType
from core.sampling_options import Sampling
from core.worker import bootstrap
from core.worker.kv_parts import Exchange, KvPart, Verb, decode_part, encode_part
from core.worker.kv_spans import STATE, CachePart, KvSpan, SpanVerb, decode_span, encode_span, serve_span
from core.worker.stage import LoadedStage
from core.worker.work_frames import (
    WORK,
    Begin,
    Dismiss,
    ResumeState,
    Word,
    WorkFrame,
    decode_orders,
    decode_problem,
    decode_resume_state,
    encode_orders,
    encode_problem,
    encode_resume_state,
    read_work,
)
from tests.fuzz.target import Target

# keys alone, windows with keys, states with keys
VARIANTS: Final = ("llama", "gemma3_text", "qwen3_next")
MOST_ROWS: Final = 64
WIDTH: Final = 96


@cache
def _stage(variant: str) -> LoadedStage:
    """Two layers in the middle of a model."""
    from core.models.slicing.probe import ModelProbe
    from core.models.slicing.slots import Slice
    from core.worker.telemetry import StageMeter
    from tests.support.made import build

    whole = build(variant)
    return LoadedStage(Slice(whole, ModelProbe(whole), 3, 5, embed=False, output=False), StageMeter(1))


def attack(data: bytes) -> None:
    """Decode a frame of the kind chosen by the first byte."""
    kind, said = data[:1], data[1:]
    frame = Frame(FrameHeader(FrameType.COMPOSE, 0, 0, 0, 16, 0, 0, bytes(16), 0, 0, 0, 0), memoryview(said))
    try:
        match kind:
            case b"T":
                told = decode_resume_state(frame)
                assert decode_resume_state(_framed(encode_resume_state(told))) == told
            case b"E":
                problem, _ = decode_problem(read_work(frame)[0].payload[0])
                assert "\x1b" not in problem.kind + problem.what + problem.fix
            case b"K":
                part = decode_part(read_work(frame)[0].payload[0])
                assert decode_part(memoryview(b"".join(encode_part(part)))) == part
                _bring(part)
            case b"B":
                ranks = bootstrap.decode(said)
                assert bootstrap.decode(bootstrap.encode(ranks)) == ranks
                assert not any("/" in device for rank in ranks.ranks for device in rank.devices)
            case b"M":
                span = decode_span(read_work(frame)[0].payload[0])
                assert decode_span(memoryview(b"".join(encode_span(span)))) == span
                _mirror(span)
            case _:
                work, _ = read_work(frame)
                ops = decode_orders(work.payload[0])
                assert decode_orders(encode_orders(ops)[0]) == ops
                _do(VARIANTS[work.handle % len(VARIANTS)], [[op for op in ops if not isinstance(op, Word)]])
    except ProtocolError:
        return


def _framed(body: bytes) -> Frame:
    return Frame(FrameHeader(FrameType.RESUME_STATE, 0, 0, 0, 16, 0, 0, bytes(16), 0, 0, 0, 0), memoryview(body))


def _do(variant: str, compositions: Sequence[Sequence[Op]]) -> None:
    """Run each operation, then a step of every handle."""
    stage = _stage(variant)
    try:
        for ops in compositions:
            _try(lambda ops=ops: stage.compose(ops))
            for handle, held in list(stage._held.items()):
                _step(stage, handle, len(held.rows.tokens))
    finally:
        stage.reset()


def _held() -> bytes:
    """The cache of a layer with two tokens."""
    from core.models.slicing.cache_state import pack

    return b"".join(pack(_stage(VARIANTS[0]).layers.outline(2)[3]))


def _bring(part: KvPart) -> None:
    """Send a part to a row that waits for it."""
    stage = _stage(VARIANTS[part.offset % len(VARIANTS)])
    try:
        stage.compose([Restore(1, 2)])
        _try(lambda: Exchange(stage).answer(1, part))
    finally:
        stage.reset()


def _mirror(span: KvSpan) -> None:
    """Send a span to a row that waits for it, and to an empty one."""
    stage = _stage(VARIANTS[span.row % len(VARIANTS)])
    try:
        stage.compose([Restore(1, 2), New(2)])
        for handle in (1, 2):
            _try(lambda handle=handle: serve_span(stage, handle, span))
    finally:
        stage.reset()


def _cut() -> KvSpan:
    """A span with the cache of a layer, for the first of two tokens."""
    from core.link.arrays import encode_arrays
    from core.models.slicing.cache_state import cut

    data = b"".join(encode_arrays(cut(_stage(VARIANTS[0]).layers.outline(2)[3], 0, 1).arrays))
    return KvSpan(SpanVerb.PASTE, 0, 0, 1, {3: CachePart(0, None, data), 4: CachePart(0, None, data)})


def _step(stage: LoadedStage, handle: int, rows: int) -> None:
    import mlx.core as mx

    if rows <= MOST_ROWS:
        _try(lambda: stage.run(handle, [mx.zeros((rows, 2, WIDTH))], stage.position(handle)))


def _try(work: object) -> None:
    assert callable(work)
    try:
        work()
    except (ProtocolError, SessionError, StageFailed):
        return


_HANDLES = st.sampled_from([1, 2, 3, 4, 2**32 - 1])
_COUNTS = st.sampled_from([0, 1, 2, 3, 8, 2**31 - 1, 2**31, 2**32 - 1])
_MANY = st.lists(_COUNTS, min_size=1, max_size=3).map(tuple)
_PADDING = st.one_of(st.none(), _MANY)
_OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(New, _HANDLES),
    st.builds(Merge, _HANDLES, st.lists(_HANDLES, max_size=4).map(tuple)),
    st.builds(Extend, _HANDLES, _HANDLES),
    st.builds(Keep, _HANDLES, _MANY),
    st.builds(Copy, _HANDLES, _HANDLES),
    st.builds(Extract, _HANDLES, _HANDLES, _COUNTS),
    st.builds(Trim, _HANDLES, _COUNTS),
    st.builds(PrepareRows, _HANDLES, _PADDING, _PADDING, _PADDING),
    st.builds(Finalise, _HANDLES),
    st.builds(Drop, _HANDLES),
    st.builds(Restore, _HANDLES, _COUNTS),
)
_BEGINNINGS = st.sampled_from(
    [
        (),
        (New(1),),
        (New(1), New(2)),
        (New(1), New(2), Merge(3, (1, 2))),
        (New(1), Merge(3, (1,)), New(2), Merge(4, (2,))),
    ]
)


@given(st.sampled_from(VARIANTS), _BEGINNINGS, st.lists(st.lists(_OPS, max_size=3), max_size=4))
def shaped(variant: str, beginning: tuple[Op, ...], compositions: list[list[Op]]) -> None:
    """Operations of the right shape on existing and missing rows, with steps in between."""
    _do(variant, [beginning, *compositions])


def target() -> Target:
    """An honest frame of each kind."""
    ops: list[Op] = [
        New(1),
        New(2),
        Merge(3, (1, 2)),
        Copy(4, 3),
        Extract(5, 3, 1),
        Keep(3, (0,)),
        Extend(4, 3),
        Drop(5),
    ]
    rows = (
        Begin(),
        Admit(b"a" * 16, Sampling(temperature=0.5, logit_bias={3: 1.0}), (1, 2), (9,), 4),
        Dismiss(b"b" * 16),
    )
    padded: list[Op] = [New(1), Merge(2, (1,)), PrepareRows(2, (1,), (2,), (0,)), Finalise(2), Trim(2, 0)]
    frames = [
        WorkFrame(FrameType.COMPOSE, 7, number, payload=encode_orders(o)) for number, o in enumerate((ops, padded))
    ]
    frames += [WorkFrame(FrameType.COMPOSE, 8, 0, askers=(b"c" * 16,), payload=encode_orders(rows))]
    seeds = [b"O" + b"".join(bytes(part) for part in frame.parts(3)) for frame in frames]
    problem = encode_problem(StageFailed("no memory").problem)[0]
    held = _held()
    parts = [KvPart(Verb.FILL, 3, 0, len(held), held), KvPart(Verb.FETCH, 4), KvPart(Verb.FILLED, 3, 0, len(held))]
    cut = _cut()
    state = KvSpan(SpanVerb.CUT, 1, 2, 2, {3: CachePart(0, STATE, b"")})
    spans = [cut, cut._replace(row=1), cut._replace(verb=SpanVerb.CUT, caches={}), state]
    spans.append(state._replace(verb=SpanVerb.PASTE, caches={3: CachePart(0, STATE, cut.caches[3].data)}))
    mirrored = [WorkFrame(FrameType.KV, 9, 1, payload=encode_span(span)).parts(9) for span in spans]
    moved = [WorkFrame(FrameType.KV, 9, 1, payload=encode_part(part)).parts(9) for part in parts]
    rank = bootstrap.RankEntry(("192.168.1.7", "169.254.3.1"), (40000, 40001), ("rdma_en2", "rdma_en3"))
    return Target(
        "work",
        attack,
        [
            *seeds,
            b"B" + bootstrap.encode(bootstrap.Bootstrap(b"s" * 16, (rank, bootstrap.RankEntry()))),
            *(b"K" + b"".join(bytes(part) for part in frame) for frame in moved),
            *(b"M" + b"".join(bytes(part) for part in frame) for frame in mirrored),
            b"T" + encode_resume_state(ResumeState(b"r" * 16, 9, (1, 2))),
            b"E" + WORK.pack(7, 3, 1, 0) + bytes(problem),
            b"O" + WORK.pack(7, 3, 2, 0) + msgspec.msgpack.encode([["New", 1], ["Keep", 1, [0]]]),
        ],
        shaped,
    )
