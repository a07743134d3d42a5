"""Macs simulated on this machine: real keys in a folder, and one roster that lists them all."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NamedTuple

from core.trust.identity import Identity, load_or_create
from core.trust.roster.bundle import Cluster
from core.trust.roster.changes import add, found
from core.trust.roster.format import new_member


class LocalMacs(NamedTuple):
    """Identities and the cluster of exactly these Macs."""

    identities: tuple[Identity, ...]  # the first one is the admin
    cluster: Cluster


def make_macs(folder: Path, count: int) -> LocalMacs:
    """Make `count` Macs with their keys in folders inside `folder`; no keychain is used. Raises IdentityError."""
    identities = tuple(load_or_create(folder / f"mac-{n}", use_keychain=False) for n in range(count))
    admin, *others = identities
    roster = found(admin, "mac-0", secrets.token_bytes(16))
    for number, identity in enumerate(others, 1):
        roster = add(roster, admin, new_member(identity.public, f"mac-{number}".encode(), roster.epoch + 1))
    return LocalMacs(identities, Cluster(roster, {i.device_id: i.certificate_der for i in identities}))
