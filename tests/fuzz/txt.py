"""TXT records of Bonjour, as zeroconf delivers them, and text that a terminal shows."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from core.node.peers.discovery import read_sighting
from core.text import clean_name, clean_text
from core.trust.identity import parse_text_id
from tests.fuzz.target import Target
from tests.support.macs import mac

_ID = mac(0).text_id.encode()


def attack(data: bytes) -> None:
    """Read pairs of length and value, two for each property; also the whole as a name and as a model's text."""
    pieces: list[bytes] = []
    rest = data
    while rest and len(pieces) < 64:
        pieces.append(rest[1 : 1 + rest[0]])
        rest = rest[1 + rest[0] :]
    properties: dict[bytes, bytes | None] = dict(zip(pieces[::2], [*pieces[1::2], None], strict=False))
    _judge(properties)
    _judge({b"id": _ID, b"name": data})
    shown = clean_text(data.decode("utf-8", "replace"))
    assert shown == clean_text(shown)
    assert not any(_drives(c) for c in shown if c not in "\n\t")


def _judge(properties: dict[bytes, bytes | None]) -> None:
    sighting = read_sighting(properties, ["10.0.0.1"], 4717)
    if sighting is not None:
        assert len(parse_text_id(sighting.device_id)) == 16
        assert sighting.name == clean_name(sighting.name)
        assert not any(_drives(c) for c in sighting.name)


def _drives(char: str) -> bool:
    return (
        unicodedata.category(char) in ("Cc", "Cs") or char in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


_HOSTILE = st.sampled_from([b"\x1b]52;c;aGk=\x07", b"\x9b2J", "\u202e".encode(), b"\xff", _ID, b""])


@given(st.dictionaries(st.sampled_from([b"id", b"name", b"v"]), st.one_of(_HOSTILE, st.binary(), st.none())))
def shaped(properties: dict[bytes, bytes | None]) -> None:
    """The right keys with any values."""
    _judge(properties)


def target() -> Target:
    """An honest record, and names that would control a terminal."""
    record = b"".join(bytes([len(p)]) + p for p in (b"id", _ID, b"name", b"studio", b"v", b"0.1.0"))
    return Target("txt", attack, [record, b"a\x1b[2Jb\xc2\x9b31m\xe2\x80\xaec", "Studio é 日本".encode()], shaped)
