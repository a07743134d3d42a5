"""Rosters, bundles and certificates: only exactly signed bytes are accepted."""

from __future__ import annotations

import hashlib

from core.errors import IdentityError, RosterError
from core.trust.identity import certificate_key
from core.trust.roster.acceptance import accept
from core.trust.roster.bundle import Cluster, decode_bundle
from core.trust.roster.format import decode, encode
from tests.fuzz.target import Target
from tests.support.macs import bundle, chain, cluster, mac

_ROSTERS = chain(4)
_KNOWN = {hashlib.sha256(encode(r)).digest() for r in _ROSTERS}
_LEAVES = [mac(n).certificate_der for n in range(4)]


def attack(data: bytes) -> None:
    """Read bytes as the type chosen by the first byte."""
    claim, said = data[:1], data[1:]
    try:
        match claim:
            case b"r":
                roster = decode(said)
                assert encode(roster) == said, "two spellings of one roster"
                for before in (None, *_ROSTERS):
                    _offer(before, said)
            case b"b":
                for each in decode_bundle(said).rosters:
                    _offer(_ROSTERS[0], each)
            case b"c":
                Cluster.decode(said)
            case _:
                certificate_key(said)
                assert said in _LEAVES, "a certificate that nobody signed"
    except (RosterError, IdentityError):
        return


def _offer(before: object, said: bytes) -> None:
    try:
        taken = accept(before, decode(said))  # type: ignore[arg-type]
    except RosterError:
        return
    assert taken.hash in _KNOWN, "a roster that nobody signed was accepted"


def target() -> Target:
    """A chain of four, as single rosters, as a bundle, for a pipe; and a leaf certificate."""
    seeds = [b"r" + encode(r) for r in _ROSTERS]
    return Target(
        "roster", attack, [*seeds, b"b" + bundle(_ROSTERS, *_LEAVES), b"c" + cluster(4).encode(), b"x" + _LEAVES[0]]
    )
