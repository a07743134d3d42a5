"""Pairing, and who is trusted how far: commands and what they answer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.events import Level
from core.requests.body import Body, Name, PathName


class Address(Body, frozen=True, kw_only=True):
    """Where a node listens for control links; `device_id` is checked against its key when it is linked."""

    device_id: Name
    host: Name
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PairingOffer(Body, frozen=True, kw_only=True):
    """Where the other Mac's pairing window listens."""

    host: Name
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PairingWindow(Body, frozen=True, kw_only=True):
    """This Mac's pairing window: the port that the other Mac is to be told."""

    port: int


class Digits(Body, frozen=True, kw_only=True):
    """The six digits that the person read on the other Mac; an empty text refuses."""

    digits: Name


class PairWith(Body, frozen=True, kw_only=True):
    """Pair with the Mac that a person chose: opens this Mac's window, and knocks at the other's once that is open."""

    device_id: Name


class Target(Body, frozen=True, kw_only=True):
    """A Mac of the roster: its device id, the beginning of that (at least 4 characters), or its name if only one has
    it.
    """

    mac: Name


class Rename(Target, frozen=True, kw_only=True):
    """A new name for a Mac of the roster."""

    name: Name


class RecoveryPhrase(Body, frozen=True, kw_only=True):
    """The 24 words on their way to the node that uses them, and the Macs that are lost for good."""

    words: PathName
    lost: tuple[Name, ...] = ()


class RecoveryWords(Body, frozen=True, kw_only=True):
    """24 words to be written down; they are shown once and kept nowhere."""

    words: str


class ForkChoice(Body, frozen=True, kw_only=True):
    """Which side of a fork is right: the hash of its newest roster, hex."""

    keep: Name


class TrustedMac(Body, frozen=True, kw_only=True):
    """A Mac as the trust screen shows it. `fingerprint` is its key's SHA-256 in hex; `sees` says in words what the
    active plan lets it see, empty where it has no part in it; `reason` why it is not "paired".
    """

    device_id: str
    name: str
    level: Level
    reason: str = ""
    role: Literal["admin", "member", "stranger", "revoked"]
    fingerprint: str = ""
    added_epoch: int = 0
    is_self: bool = False
    sees: str = ""


class TrustView(Body, frozen=True, kw_only=True):
    """All that `macluster trust` and the trust screen show. `roster_hash` is hex, `roster_age_s` counts seconds since
    this Mac adopted the roster; `fork` holds the hashes of the newest roster of each history, ours first, while none is
    chosen; `fork_epoch` is the first epoch in which they differ, and `fork_notes` says of each what was signed in it.
    """

    level: Level
    weakest: str = ""
    key_storage: str
    epoch: int = 0
    roster_hash: str = ""
    roster_age_s: float = 0.0
    is_admin: bool = False
    has_recovery: bool = False
    fork: tuple[str, ...] | None = None
    fork_epoch: int = 0
    fork_notes: tuple[str, ...] = ()
    macs: tuple[TrustedMac, ...] = ()
