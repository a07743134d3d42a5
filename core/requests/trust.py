"""Pairing and trust: requests and responses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.events import Level
from core.requests.body import Body, Name, PathName


class Address(Body, frozen=True, kw_only=True):
    """Control address of a node."""

    device_id: Name  # checked against its key when linking
    host: Name
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PairingOffer(Body, frozen=True, kw_only=True):
    """Address of the other Mac's pairing window."""

    host: Name
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PairingWindow(Body, frozen=True, kw_only=True):
    """Port of this Mac's pairing window, to type on the other Mac."""

    port: int


class Digits(Body, frozen=True, kw_only=True):
    """Six digits typed by the user; empty refuses."""

    digits: Name


class PairWith(Body, frozen=True, kw_only=True):
    """Pair with a Mac: open this Mac's window and call the other one when its window is open."""

    device_id: Name


class Target(Body, frozen=True, kw_only=True):
    """A Mac of the roster: its device id, the start of one (at least 4 characters), or a unique name."""

    mac: Name


class Rename(Target, frozen=True, kw_only=True):
    """Rename a Mac of the roster."""

    name: Name


class RecoveryPhrase(Body, frozen=True, kw_only=True):
    """Use the recovery words."""

    words: PathName  # 24
    lost: tuple[Name, ...] = ()  # Macs to revoke


class RecoveryWords(Body, frozen=True, kw_only=True):
    """24 recovery words; shown once and never stored."""

    words: str


class ForkChoice(Body, frozen=True, kw_only=True):
    """The correct side of a fork."""

    keep: Name  # hash of its newest roster, hex


class TrustedMac(Body, frozen=True, kw_only=True):
    """A Mac on the trust screen."""

    device_id: str
    name: str
    level: Level
    reason: str = ""  # why it isn't "paired"
    update: str = ""  # why its version keeps it out of plans
    role: Literal["admin", "member", "stranger", "revoked"]
    fingerprint: str = ""  # SHA-256 of its key, hex
    added_epoch: int = 0
    is_self: bool = False
    sees: str = ""  # what the active plan lets it see, "" if it has no part in it


class TrustView(Body, frozen=True, kw_only=True):
    """Content of the trust screen and `macluster trust`."""

    level: Level
    weakest: str = ""  # name of the least trusted Mac
    key_storage: str
    epoch: int = 0
    roster_hash: str = ""  # hex
    roster_age_s: float = 0.0  # since this Mac adopted the roster
    is_admin: bool = False
    has_recovery: bool = False
    fork: tuple[str, ...] | None = None  # newest hash of each history, ours first, until a user chooses one
    fork_epoch: int = 0  # first epoch in which they differ
    fork_notes: tuple[str, ...] = ()  # what each of them signed then
    macs: tuple[TrustedMac, ...] = ()
