"""Frames of the engine are decoded as they were encoded, and every other frame is a ProtocolError."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.ring_work import Copy, Drop, Extend, Extract, Finalise, Keep, Merge, New, Op, PrepareRows, Trim
from core.errors import Problem, ProtocolError
from core.link.data_plane import Frame
from core.link.frames import FrameHeader, FrameType
from core.worker.work_frames import (
    NO_REQUEST,
    TEXT_LIMIT,
    WORK,
    WORK_TYPES,
    ResumeState,
    WorkFrame,
    decode_orders,
    decode_problem,
    decode_resume_state,
    encode_orders,
    encode_problem,
    encode_resume_state,
    read_work,
)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
SOME = st.lists(U32, max_size=6).map(tuple)
PADDING = st.one_of(st.none(), SOME)
DEEP = b"\x91" * 20_000 + b"\xc0"

OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(New, U32),
    st.builds(Merge, U32, SOME),
    st.builds(Extend, U32, U32),
    st.builds(Keep, U32, SOME),
    st.builds(Copy, U32, U32),
    st.builds(Extract, U32, U32, U32),
    st.builds(Trim, U32, U32),
    st.builds(PrepareRows, U32, PADDING, PADDING, PADDING),
    st.builds(Finalise, U32),
    st.builds(Drop, U32),
)


def frame_of(body: bytes, kind: FrameType = FrameType.COMPOSE, *, flags: int = 0) -> Frame:
    header = FrameHeader(kind, flags, 0, 0, len(body) + 16, 0, 1, NO_REQUEST, 0, 0, 0, 0)
    return Frame(header, memoryview(body))


@given(
    st.builds(
        WorkFrame,
        kind=st.sampled_from(sorted(WORK_TYPES)),
        step=U64,
        handle=U32,
        request=st.binary(min_size=16, max_size=16),
        position=U32,
        rows=st.integers(0, 4096),
        quiet=st.booleans(),
        every=st.booleans(),
        askers=st.lists(st.binary(min_size=16, max_size=16), max_size=3).map(tuple),
        payload=st.lists(st.binary(max_size=9), max_size=3).map(tuple),
    ),
    U64,
)
def test_a_work_frame_comes_back_with_its_base(work: WorkFrame, base: int) -> None:
    body = b"".join(bytes(part) for part in work.parts(base))
    header = FrameHeader(
        work.kind, work.flags, 0, 0, len(body) + 16, work.position, 1, work.request, 0, 0, work.rows, 0
    )
    came, lowest = read_work(Frame(header, memoryview(body)))
    assert came._replace(payload=(bytes(came.payload[0]),)) == work._replace(payload=(b"".join(work.payload),))
    assert lowest == base


@given(st.binary(max_size=WORK.size - 1), st.sampled_from(sorted(WORK_TYPES)))
def test_a_frame_that_names_no_step_is_refused(body: bytes, kind: FrameType) -> None:
    with pytest.raises(ProtocolError, match="too short to say which step"):
        read_work(frame_of(body, kind))


@given(st.lists(OPS, max_size=8))
def test_a_composition_comes_back(ops: list[Op]) -> None:
    assert decode_orders(b"".join(encode_orders(ops))) == tuple(ops)


@given(st.integers(0, 2**53 - 1), st.binary(max_size=16), st.lists(st.integers(1, 64), max_size=4))
def test_a_standing_comes_back(base: int, run: bytes, lost: list[int]) -> None:
    asked = ResumeState(run, base, tuple(lost))
    assert decode_resume_state(frame_of(encode_resume_state(asked), FrameType.RESUME_STATE)) == asked


def op(*values: object) -> bytes:
    return msgspec.msgpack.encode([list(values)])


BAD_OPS = {
    "empty": b"",
    "no list": b"\xc0",
    "an unknown one": op("Explode", 1),
    "an escape for a name": op("\x1b]52;c;x\x07", 1),
    "no name": op(),
    "a name that is no text": b"\x91\x92\xa3\xff\xfe\xfd\x01",
    "a handle below zero": op("New", -1),
    "a handle of 2^32": op("New", 2**32),
    "a handle of 2^64 - 1": op("Drop", 2**64 - 1),
    "a handle and a half": op("New", 1.5),
    "a handle that is text": op("New", "1"),
    "a row below zero": op("Keep", 1, [-1]),
    "a row of 2^32": op("Keep", 1, [2**32]),
    "rows that are no list": op("Merge", 1, 2),
    "rows that are missing": op("Merge", 1),
    "a count of 2^32": op("Trim", 1, 2**32),
    "padding that is text": op("Prepare", 1, ["x"]),
    "more than one": msgspec.msgpack.encode([["New", 1]]) * 2,
    "cut short": encode_orders([Merge(1, (2, 3))])[0][:-1],
    "a list of 2^32 - 1": b"\xdd\xff\xff\xff\xff",
    "rows of 2^32 - 1": b"\x91\x93\xa5Merge\x01\xdd\xff\xff\xff\xff",
    "nested for ever": DEEP,
    "nested where a handle stands": b"\x91\x92\xa3New" + DEEP,
    "nested behind the last field": b"\x91\x93\xa3New\x01" + DEEP,
}


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in BAD_OPS.items()])
def test_a_composition_that_nobody_sends_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        decode_orders(body)
    assert "\x1b" not in refused.value.what


BAD_PROBLEMS = {
    "empty": b"",
    "a number": b"\x07",
    "no kind": msgspec.msgpack.encode({"what": "x"}),
    "text that is none": b"\x82\xa4kind\xa1\xff\xa4what\xa1\xff",
    "nested in another field": b"\x83\xa4kind\xa1a\xa4what\xa1b\xa1x" + DEEP,
}
BAD_STANDINGS = {
    "empty": b"",
    "no run": msgspec.msgpack.encode([1, 1]),
    "a base that is text": msgspec.msgpack.encode([b"r", "1"]),
    "a run that is text of no kind": b"\x93\xa2\xff\xfe\x01\x90",
    "nested behind the last field": b"\x94\xc4\x01r\x01\x90" + DEEP,
}


@pytest.mark.parametrize(
    ("decode", "body"),
    [
        *(pytest.param(decode_problem, body, id=f"problem, {name}") for name, body in BAD_PROBLEMS.items()),
        *(
            pytest.param(lambda b: decode_resume_state(frame_of(b)), body, id=f"standing, {name}")
            for name, body in BAD_STANDINGS.items()
        ),
    ],
)
def test_what_does_not_decode_is_refused(decode: Callable[[bytes], Any], body: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not decode"):
        decode(body)


def test_no_escape_of_another_mac_comes_through_a_problem() -> None:
    hostile = "\x1b]52;c;aGk=\x07\u202e" + "x" * 2 * TEXT_LIMIT
    told, _ = decode_problem(encode_problem(Problem(kind=hostile, what=hostile, fix=hostile))[0])
    for text in (told.kind, told.what, told.fix):
        assert len(text) <= TEXT_LIMIT
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", text)
        assert text.endswith("xxx")
