"""Mutations of frames and messages, from reproducible dice."""

from __future__ import annotations

import random

import msgspec

from core.link.frames import HEADER, FrameType
from core.node.base.node_message import NodeMessage, to_frame
from core.node.peers.messages import LinkProbe
from core.node.relay.messages import RelayReply, RelayRequest
from tests.support.node_messages import FRAMES

_SIZE = HEADER.size
_NUMBERS = (0, 1, -1, 2**31, 2**32, 2**63, 2**64, 1e308, -0.0, 10**400)
_NO_JSON = (LinkProbe, RelayRequest, RelayReply)
_PIECES = (b"", b"\0", b"\xff\xfe", b"null", b"[]", b"{}", b'"\\u001b]52;c;aGk=\\u0007"', b'"\\ud800"', b"[" * 200)


def mutate(good: bytes, other: bytes, dice: random.Random) -> bytes:
    """`good`, a whole frame, with at least one bit changed; `other` is a frame to splice in."""
    while True:
        bad = bytearray(good)
        match dice.randrange(8):
            case 0 | 1:
                for _ in range(dice.randrange(1, 4)):
                    bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
            case 2:  # one field of the header, at its limits
                at, size = dice.choice([(3, 1), (4, 1), (5, 1), (6, 2), (8, 4), (12, 4), (16, 8), (24, 16), (44, 2)])
                bad[at : at + size] = dice.choice([bytes(size), b"\xff" * size, dice.randbytes(size)])
            case 3:  # the ciphertext
                bad[dice.randrange(_SIZE, len(bad))] = dice.randrange(256)
            case 4:
                del bad[dice.randrange(len(bad)) :]
            case 5:  # longer, with a matching length
                more = dice.randbytes(dice.randrange(1, 40))
                bad[8:12] = (len(bad) - _SIZE + len(more)).to_bytes(4, "little")
                bad += more
            case 6:  # the head of one, the body of the other
                bad[_SIZE:] = other[_SIZE:]
            case _:
                bad[:] = dice.choice([other, dice.randbytes(len(bad)), bytes(len(bad)), other[:_SIZE] + good[_SIZE:]])
        if bytes(bad) != good:
            return bytes(bad)


def mutated_json(message: NodeMessage, dice: random.Random) -> tuple[FrameType, bytes]:
    """A message that no honest node sends: cut, spliced, with wrong values, or in another type's frame."""
    kind, body = to_frame(message)
    match dice.randrange(5):
        case 0:
            at = dice.randrange(len(body))
            body = body[:at] + dice.choice(_PIECES) + body[at + dice.randrange(4) :]
        case 1:
            body = body[: dice.randrange(len(body))]
        case 2 if not isinstance(message, _NO_JSON):
            body = _bent(msgspec.json.decode(body), dice)
        case 3:
            kind = dice.choice(sorted(set(FRAMES.values())))
        case _:
            body = dice.randbytes(dice.randrange(300))
    return kind, body


def _bent(value: dict[str, object], dice: random.Random) -> bytes:
    """The value with one random field replaced by another kind or size."""
    holder = value
    while nested := [v for v in holder.values() if isinstance(v, dict) and v]:
        if dice.random() < 0.5:
            break
        holder = dice.choice(nested)
    odd: list[object] = [*_NUMBERS, None, True, [], {}, "", "\x1b[2J" * 50, "x" * 2000, [[[]]] * 50, {"a": {"b": 1}}]
    holder[dice.choice(sorted(holder))] = dice.choice(odd)
    try:
        return msgspec.json.encode(value)
    except OverflowError:
        return b"{}"
