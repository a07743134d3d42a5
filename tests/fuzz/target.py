"""Targets, and the random changes that make their inputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Shaped = Any  # the function that `given` makes of a test, with its `hypothesis` attribute

_ODD = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\0\0\0\x40",
    b"\xff" * 8,
    b'"',
    b"[",
    b"{",
)


class Target(NamedTuple):
    """One reader of foreign bytes.

    * `attack` takes any bytes and swallows the one error that this reader may raise; any other error, and every broken
      promise, is a defect.
    * `seeds` are good inputs to change.
    * `shaped` is a hypothesis test with well-formed inputs and wrong contents, for readers that reject changed
      bytes at once.
    * `end` takes down everything that the attacks started.
    """

    name: str
    attack: Callable[[bytes], None]
    seeds: Sequence[bytes]
    shaped: Shaped = None
    end: Callable[[], None] = lambda: None


def bend(seeds: Sequence[bytes], dice: random.Random) -> bytes:
    """Change a seed in one to eight places: bits, bytes, numbers, pieces cut, doubled or moved in from another seed."""
    data = bytearray(dice.choice(seeds))
    for _ in range(1 << dice.randrange(4)):
        _change(data, dice, seeds)
    return bytes(data)


def _change(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    at = dice.randrange(len(data) + 1)
    length = min(1 << dice.randrange(7), len(data) - at)
    match dice.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        case 1 if at < len(data):
            data[at] = dice.randrange(256)
        case 2:
            piece = dice.choice(_ODD)
            data[at : at + len(piece)] = piece
        case 3:
            del data[at : at + length]
        case 4:
            data[at:at] = data[at : at + length]
        case 5:
            other = dice.choice(seeds)
            start = dice.randrange(len(other) + 1)
            data[at : at + length] = other[start : start + length]
        case _:
            data[at:at] = dice.randbytes(length)
