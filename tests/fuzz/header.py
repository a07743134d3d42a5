"""Frame headers and sealed frames: a frame is taken if and only if it is the one that was sealed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.errors import ProtocolError, SealError
from core.link.frames import HEADER, MAX_BODY, FrameHeader, FrameType, parse
from core.link.seal import Opener, Sealer
from tests.fuzz.target import Target
from tests.support.frames import pack
from tests.support.handshakes import agree

_SESSIONS = agree()
_BODY = b"sixteen bytes ..."


def _frame() -> bytes:
    return bytes(Sealer(_SESSIONS[0]).seal(FrameType.ACTIVATION, rows=1, pos=3, layers=(2, 9), parts=[_BODY]))


_GOOD = _frame()
_OPENER = Opener(_SESSIONS[1])


def attack(data: bytes) -> None:
    """Read bytes as a header alone, and as a whole frame."""
    try:
        header = parse(data)
        assert pack(header) == data[: HEADER.size]
        assert header.body_len <= MAX_BODY
    except ProtocolError:
        pass
    try:
        _OPENER.open_frame(data)
    except (ProtocolError, SealError):
        assert len(_OPENER._buffer) <= 2 * MAX_BODY
        return
    assert data == _GOOD, "a frame that nobody sealed was opened"
    _OPENER._seq = 0


_NUMBER = {"B": 255, "H": 65535, "I": 2**32 - 1, "Q": 2**64 - 1}
_FIELDS = "BBBHIIQ"


@given(
    st.tuples(*(st.one_of(st.sampled_from([0, 1, 2, _NUMBER[f]]), st.integers(0, _NUMBER[f])) for f in _FIELDS)),
    st.binary(min_size=16, max_size=16),
    st.tuples(*(st.integers(0, 65535) for _ in range(4))),
    st.binary(max_size=40),
)
def shaped(fields: tuple[int, ...], request: bytes, layers: tuple[int, ...], body: bytes) -> None:
    """Any value in any field, after the right magic and version."""
    attack(HEADER.pack(b"MC", 1, *fields, request, *layers) + body)


def target() -> Target:
    """A sealed frame, and headers at their limits."""
    limits = [FrameHeader(FrameType.KV, 3, 5, 0, size, 0, 0, bytes(16), 0, 9, 4096, 1) for size in (16, MAX_BODY)]
    return Target("header", attack, [_GOOD, *map(pack, limits)], shaped)
