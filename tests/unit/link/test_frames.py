import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ProtocolError
from core.link.frames import HEADER, MAX_BODY, TAG_BYTES, DType, Flag, FrameHeader, FrameType, parse
from core.settings import MAX_ROWS
from tests.support.frames import pack

u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
headers = st.builds(
    lambda low, high, **rest: FrameHeader(layer_lo=min(low, high), layer_hi=max(low, high), **rest),
    u16,
    u16,
    type=st.sampled_from(FrameType),
    flags=st.integers(0, 3),
    dtype=st.sampled_from(DType).map(int),
    key_epoch=u16,
    body_len=st.integers(TAG_BYTES, MAX_BODY),
    pos=u32,
    seq=u64,
    request_id=st.binary(min_size=16, max_size=16),
    rows=st.integers(0, MAX_ROWS),
    plan_gen=u16,
)
GOOD = FrameHeader(FrameType.ACTIVATION, 1, 2, 0, 80, 5, 9, b"Q" * 16, 0, 15, 1, 1)


@given(headers)
def test_header_round_trip(header: FrameHeader) -> None:
    data = pack(header)
    assert len(data) == HEADER.size == 48
    assert parse(data) == header


@given(st.binary(max_size=64), headers, st.integers(0, 48))
def test_the_parser_raises_only_protocol_errors(junk: bytes, header: FrameHeader, keep: int) -> None:
    for data in (junk, b"MC\x01" + junk, pack(header)[:keep] + junk):
        with contextlib.suppress(ProtocolError):
            parse(data)


def test_the_numbers_of_the_design() -> None:
    assert {t.name: int(t) for t in FrameType} == {
        "HELLO": 0x01,
        "HELLO_ACK": 0x02,
        "PING": 0x03,
        "GREETING": 0x05,
        "TENSOR_BOOTSTRAP": 0x07,
        "PROMPT_TOKENS": 0x08,
        "STEP_TOKEN": 0x09,
        "ACTIVATION": 0x0B,
        "TOKEN": 0x0C,
        "COMPOSE": 0x10,
        "ACK": 0x11,
        "KV": 0x12,
        "RESUME": 0x13,
        "CANCEL": 0x14,
        "ERROR": 0x15,
        "PLAN": 0x16,
        "ROSTER": 0x17,
        "TELEMETRY": 0x18,
        "KEY_CHANGE": 0x19,
        "RESUME_STATE": 0x1A,
        "PROBE": 0x1B,
        "SPEED_TEST": 0x1C,
        "MODEL_INVENTORY": 0x1D,
        "COPY": 0x1E,
        "FILE_PART": 0x1F,
        "RELAY_ASK": 0x20,
        "RELAY_REPLY": 0x21,
        "TUNNEL": 0x22,
        "LOG": 0x23,
        "BYE": 0xFF,
    }
    assert (Flag.LAST_CHUNK, Flag.PREFILL, Flag.EVERY) == (1, 2, 4)
    assert parse(pack(GOOD)).layers == (0, 15)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("body_len", 1 << 30),
        ("body_len", 2**32 - 1),
        ("body_len", MAX_BODY + 1),
        ("body_len", 15),
        ("body_len", 0),
        ("rows", MAX_ROWS + 1),
        ("flags", 8),
        ("dtype", len(DType)),
        ("layer_lo", 16),
    ],
)
def test_limits_hold_both_ways(field: str, value: Any) -> None:
    bad = GOOD._replace(**{field: value})
    with pytest.raises(ProtocolError):
        pack(bad)
    with pytest.raises(ProtocolError):
        parse(HEADER.pack(b"MC", 1, *bad))


@pytest.mark.parametrize(("at", "value"), [(0, 0), (1, 0), (2, 2), (2, 0)])
def test_another_magic_or_version_is_refused(at: int, value: int) -> None:
    data = bytearray(pack(GOOD))
    data[at] = value
    with pytest.raises(ProtocolError):
        parse(data)


@pytest.mark.parametrize("number", [0, 0x06, 0x0A, 0xFE])
def test_the_type_of_a_later_version_is_read_and_has_no_name(number: int) -> None:
    data = bytearray(pack(GOOD))
    data[3] = number
    kind = parse(data).type
    assert (kind, f"{kind:02x}", kind in set(FrameType)) == (number, f"{number:02x}", False)


@pytest.mark.parametrize("change", [{"pos": 2**32}, {"pos": -1}, {"plan_gen": 65536}, {"request_id": b"short"}])
def test_a_field_out_of_range_is_a_protocol_error_on_sending(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        pack(GOOD._replace(**change))


def test_the_layout_of_the_specification() -> None:
    assert pack(GOOD) == struct.pack("<2sBBBBHIIQ16sHHHH", b"MC", 1, 0x0B, 1, 2, 0, 80, 5, 9, b"Q" * 16, 0, 15, 1, 1)
