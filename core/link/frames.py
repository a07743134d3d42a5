"""The 48-byte frame header and its limits (security.md §2.5, type numbers of DESIGN.md §4). Little-endian:

"MC" | ver u8 | type u8 | flags u8 | dtype u8 | key_epoch u16 | body_len u32 | pos u32 | seq u64 | request_id 16
| layer_lo u16 | layer_hi u16 | rows u16 | plan_gen u16.   body = ciphertext | tag 16.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

from core.errors import ProtocolError
from core.settings import MAX_ROWS, MIB

Buffer = bytes | bytearray | memoryview

MAX_BODY: Final = 16 * MIB + 16
VERSION: Final = 1
TAG_BYTES: Final = 16
MAGIC: Final = b"MC"
HEADER: Final = struct.Struct("<2sBBBBHIIQ16sHHHH")


class FrameType(IntEnum):
    """Type of a frame. Numbers of later versions are types without a name: a node ignores them on a control link, and
    a data link refuses each frame that is not expected.
    """

    # reserved: 0x04 pong (a ping answers the last one), 0x0A session stop, 0x0D session end
    HELLO = 0x01
    HELLO_ACK = 0x02
    PING = 0x03
    GREETING = 0x05
    TENSOR_BOOTSTRAP = 0x07
    PROMPT_TOKENS = 0x08
    STEP_TOKEN = 0x09
    ACTIVATION = 0x0B
    TOKEN = 0x0C
    COMPOSE = 0x10
    ACK = 0x11
    KV = 0x12
    RESUME = 0x13
    CANCEL = 0x14
    ERROR = 0x15
    PLAN = 0x16
    ROSTER = 0x17
    TELEMETRY = 0x18
    KEY_CHANGE = 0x19
    RESUME_STATE = 0x1A
    PROBE = 0x1B
    SPEED_TEST = 0x1C
    MODEL_INVENTORY = 0x1D
    COPY = 0x1E
    FILE_PART = 0x1F
    RELAY_ASK = 0x20
    RELAY_REPLY = 0x21
    TUNNEL = 0x22
    LOG = 0x23
    BYE = 0xFF

    @classmethod
    def _missing_(cls, value: object) -> FrameType:
        assert isinstance(value, int)
        later = int.__new__(cls, value)
        later._name_, later._value_ = f"0x{value:02X}", value
        return later


class Flag(IntFlag):
    """Bits of a work frame."""

    LAST_CHUNK = 1
    PREFILL = 2
    EVERY = 4


class DType(IntEnum):
    """Codes of array elements; NONE where a frame carries no array, or arrays that describe themselves."""

    NONE = 0
    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    INT32 = 4
    UINT32 = 5
    INT8 = 6


class FrameHeader(NamedTuple):
    """Header of a frame, without magic and version. `body_len` includes the tag; layers are half-open."""

    type: FrameType
    flags: int
    dtype: int
    key_epoch: int
    body_len: int
    pos: int
    seq: int
    request_id: bytes
    layer_lo: int
    layer_hi: int
    rows: int
    plan_gen: int

    @property
    def layers(self) -> tuple[int, int]:
        return (self.layer_lo, self.layer_hi)


_TYPES: Final = {int(t): t for t in FrameType}
_FLAGS: Final = int(Flag.LAST_CHUNK | Flag.PREFILL | Flag.EVERY)
_DTYPES: Final = len(DType)


def pack_into(buffer: bytearray | memoryview, offset: int, header: FrameHeader) -> None:
    """Write `header` into `buffer`. Raises ProtocolError if a field is out of range."""
    _check(header)
    try:
        HEADER.pack_into(buffer, offset, MAGIC, VERSION, *header)
    except struct.error as error:
        raise ProtocolError(f"A frame header field is out of its range: {error}.") from error


def parse(data: Buffer) -> FrameHeader:
    """Parse a header, checking every limit before anything is allocated. Raises only ProtocolError."""
    try:
        magic, version, number, *fields = HEADER.unpack_from(data)
    except struct.error as error:
        raise ProtocolError("A frame header ends too soon.") from error
    if magic != MAGIC or version != VERSION:
        cure = "Run the same version of macluster on every Mac."
        raise ProtocolError(f"A frame begins with {magic!r} version {version}; this Mac speaks version 1.", cure)
    header = FrameHeader(_TYPES.get(number) or FrameType(number), *fields)
    _check(header)
    return header


def _check(header: FrameHeader) -> None:
    if not TAG_BYTES <= header.body_len <= MAX_BODY:
        raise ProtocolError(f"A frame body of {header.body_len} bytes is outside {TAG_BYTES} to {MAX_BODY}.")
    if header.rows > MAX_ROWS:
        raise ProtocolError(f"A frame of {header.rows} rows is beyond the {MAX_ROWS} allowed.")
    is_known = header.flags & ~_FLAGS == 0 and header.dtype < _DTYPES
    if not is_known or header.layer_lo > header.layer_hi or len(header.request_id) != 16:
        what = f"flags {header.flags:#x}, dtype {header.dtype} or layers {header.layer_lo} to {header.layer_hi}"
        raise ProtocolError(f"A frame has a bad request id, {what}.")
