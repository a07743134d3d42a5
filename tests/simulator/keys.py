"""The same four Macs in every run: their keys, and the rosters signed by the first of them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.trust.identity import Identity, device_id_of, text_id
from core.trust.roster.changes import add, found, revoke
from core.trust.roster.format import Member, Role, Roster

NAMES = "abcd"
NOWHERE = Path("/nonexistent")


@cache
def mac(number: int) -> Identity:
    """Mac `number`, without files."""
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(NAMES[number].encode()).digest())
    public = key.public_key().public_bytes_raw()
    return Identity(
        public=public,
        device_id=device_id_of(public),
        text_id=text_id(device_id_of(public)),
        certificate_der=b"",
        certificate_path=NOWHERE,
        key_path=NOWHERE,
        storage="file permissions",
        passphrase=b"",
        _key=key,
    )


@cache
def chain(size: int) -> tuple[Roster, ...]:
    """Rosters of epoch 1 to `size`: Mac 0 founds, then adds the others."""
    if size == 1:
        return (found(mac(0), NAMES[0], b"C" * 16),)
    before, added = chain(size - 1), mac(size - 1)
    member = Member(
        device_id=added.device_id,
        public=added.public,
        role=Role.MEMBER,
        level="paired",
        added_epoch=size,
        raw_name=NAMES[size - 1].encode(),
    )
    return (*before, add(before[-1], mac(0), member))


@cache
def revoking(size: int, number: int) -> Roster:
    """The roster in which Mac 0 revokes Mac `number`."""
    return revoke(chain(size)[-1], mac(0), mac(number).device_id)
