"""Messages between nodes and a worker's input from a hop, as a hostile paired Mac can send them."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from core.errors import ProtocolError
from core.link.arrays import decode_arrays, encode_arrays
from core.link.data_plane import Frame
from core.link.frames import FrameHeader, FrameType
from core.node.base.node_message import to_frame
from core.node.peers.messages import LinkProbe
from core.node.relay.messages import RelayReply, RelayRequest
from core.node.relay.relayed_values import NotAnswered, Wanted, encoded, relayed_from, wanted_from
from core.worker.messages import StageSample
from core.worker.ring import read_samples
from core.worker.work_frames import decode_problem
from tests.fuzz.target import Target
from tests.support.node_messages import EVERY, FRAMES, RELAYED, from_frame

_KINDS = sorted(set(FRAMES.values()))
_IN_JSON = [m for m in EVERY if not isinstance(m, LinkProbe | RelayRequest | RelayReply)]


def attack(data: bytes) -> None:
    """Decode a message; the first byte chooses its entry."""
    turn, said = data[:1], data[1:]
    frame = Frame(FrameHeader(FrameType.ERROR, 0, 0, 0, 16, 0, 0, bytes(16), 0, 0, 0, 0), memoryview(said))
    try:
        match turn:
            case b"A":
                decode_arrays(memoryview(said))
            case b"E":
                told, _ = decode_problem(frame.body)
                assert "\x1b" not in told.kind + told.what + told.fix
            case b"W":
                wanted_from(said)
            case b"R":
                _as_told(said)
            case b"S":
                read_samples(frame)
            case _:
                for kind in _KINDS:
                    _as_message(kind, said)
    except ProtocolError:
        return


def _as_message(kind: FrameType, said: bytes) -> None:
    try:
        message = from_frame(kind, said)
    except ProtocolError:
        return
    text = msgspec.json.encode(message).decode()
    assert r"\u001b" not in text, "an escape came through"
    assert r"\u009b" not in text
    assert "\x9b" not in text
    assert from_frame(*to_frame(message)) == message
    assert all(abs(number) < 1 << 53 for number in _numbers(msgspec.to_builtins(message)))


def _as_told(said: bytes) -> None:
    told = relayed_from(said)
    assert relayed_from(encoded(told)) == told
    assert all(abs(number) < 1 << 128 for number in _numbers(msgspec.to_builtins(told)))
    if isinstance(told, NotAnswered):
        assert "\x1b" not in told.problem.kind + told.problem.what + told.problem.fix


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**64), 2**64), st.floats(), st.text(), st.sampled_from(["\x1b]52;c;x\x07"])
)
_VALUES: Any = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
)


@given(st.sampled_from(_IN_JSON), st.lists(st.tuples(st.integers(0, 10**6), _VALUES), min_size=1, max_size=3))
def shaped(message: Any, changes: list[tuple[int, Any]]) -> None:
    """An honest message with some values replaced by any JSON value."""
    _, body = to_frame(message)
    value = msgspec.json.decode(body)
    for where, new in changes:
        holders = _holders(value)
        holder = holders[where % len(holders)]
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if keys:
            holder[keys[where // len(holders) % len(keys)]] = new
    try:
        encoded = msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return
    attack(b"M" + encoded)


def _numbers(value: Any) -> list[float]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [value] if isinstance(value, int | float) else []
    return found + [number for v in inner for number in _numbers(v)]


def _holders(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    found = [value] if isinstance(value, dict | list) else []
    return found + [h for v in inner for h in _holders(v)]


def target() -> Target:
    """Every message, relayed frames, arrays, samples and a problem."""
    import mlx.core as mx

    arrays = b"".join(bytes(p) for p in encode_arrays([mx.zeros((1, 2, 3)), mx.zeros((4,), mx.bfloat16)]))
    samples = msgspec.msgpack.encode([StageSample(index=1)])
    problem = msgspec.msgpack.encode({"kind": "LinkLost", "what": "gone", "fix": ""})
    seeds = [b"M" + to_frame(m)[1] for m in EVERY]
    seeds += [(b"W" if isinstance(value, Wanted) else b"R") + encoded(value) for value in RELAYED]
    return Target("control", attack, [*seeds, b"A" + arrays, b"S" + samples, b"E" + problem], shaped)
