"""Change a Mac's device key: prepare the next key, request it with the old key's signature, and swap.

An admin puts the new key into the roster in place of the old one; when that roster arrives, the Mac swaps its files.
The passphrase stays, so sealed files stay readable: a rotation is about the key that other Macs know. If the passphrase
leaked, remove the identity folder, and with it everything sealed.

Request: "MCK1" | old_id 16 | epoch u64 | signature 64 | certificate DER. The old key signs "macluster/1 rotate\\0" |
cluster_id 16 | old_id 16 | new key 32 | epoch u64. The new key signs the certificate, which proves possession.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.errors import IdentityError, RosterError
from core.trust import identity as device_key
from core.trust.private_files import move
from core.trust.roster.format import Roster

_REQUEST: Final = struct.Struct("<4s16sQ64s")


class Rotation(NamedTuple):
    """A Mac's request to change its key; `check_rotation` verifies it."""

    old_id: bytes
    public: bytes
    certificate: bytes
    epoch: int
    sig: bytes


def ask_rotation(roster: Roster, identity: device_key.Identity, following: device_key.Identity) -> bytes:
    """Request to replace `identity` by `following`, valid only for the epoch after `roster`."""
    sig = identity.sign(_words(roster, identity.device_id, following.public))
    return _REQUEST.pack(b"MCK1", identity.device_id, roster.epoch + 1, sig) + following.certificate_der


def decode_rotation(data: bytes) -> Rotation:
    """Decode a request and check its certificate, not its signature. Raises RosterError."""
    if len(data) < _REQUEST.size or data[:4] != b"MCK1":
        raise RosterError("These bytes are not a request to change a key.")
    _, old_id, epoch, sig = _REQUEST.unpack_from(data)
    certificate = data[_REQUEST.size :]
    try:
        public = device_key.certificate_key(certificate)
    except IdentityError as error:
        raise RosterError(f"The certificate of a new key is not accepted: {error.what}") from error
    return Rotation(old_id, public, certificate, epoch, sig)


def check_rotation(roster: Roster, rotation: Rotation) -> None:
    """Check that the Mac is in `roster`, asked for this epoch, and signed the request. Raises RosterError."""
    mac = roster.member(rotation.old_id)
    if mac is None:
        raise RosterError(
            f"Mac {device_key.text_id(rotation.old_id)[:8]} is not in this cluster and has no key to change."
        )
    if rotation.epoch != roster.epoch + 1:
        what = f"{mac.name} asked for a new key in epoch {rotation.epoch}; the next one is {roster.epoch + 1}."
        raise RosterError(what, "Ask again from that Mac.")
    if rotation.public == mac.public:
        raise RosterError(f"The new key of {mac.name} is the same as its old one.", "Ask again from that Mac.")
    if not device_key.is_signed(mac.public, rotation.sig, _words(roster, rotation.old_id, rotation.public)):
        raise RosterError(f"The request for a new key of {mac.name} is not signed by its old key.")


def _words(roster: Roster, old_id: bytes, public: bytes) -> bytes:
    return b"macluster/1 rotate\0" + roster.cluster_id + old_id + public + struct.pack("<Q", roster.epoch + 1)


def prepare_rotation(folder: Path) -> device_key.Identity:
    """Create the next key, or find it again. Raises IdentityError, also if the keychain is locked."""
    passphrase = device_key.load_or_create(folder).passphrase
    key_path, certificate_path = folder / f"{device_key.NEXT}.pem", folder / f"{device_key.NEXT}.crt"
    if not os.path.lexists(key_path):
        key = Ed25519PrivateKey.generate()
        if not (os.path.lexists(folder / "passphrase") or device_key.to_keychain(key, passphrase)):
            cure = "Unlock it (`security unlock-keychain`), or do this from a login session."
            raise IdentityError("The keychain does not take the passphrase of the next key.", cure)
        device_key.write_key(key_path, key, passphrase)
    if not os.path.lexists(certificate_path):
        device_key.write_certificate(certificate_path, device_key.read_key(key_path, passphrase))
    return device_key.open_pair(folder, device_key.NEXT, passphrase)


def finish_rotation(folder: Path) -> device_key.Identity:
    """Swap the keys and delete the old one. The key moves first and `open_identity` completes an interrupted swap, so
    the folder always holds one whole identity. Raises IdentityError.

    Identity values from before the swap are void in every process: their paths lead to the new key.
    """
    if not (os.path.lexists(folder / f"{device_key.NEXT}.pem") and os.path.lexists(folder / f"{device_key.NEXT}.crt")):
        raise IdentityError(f"No next key is prepared in {folder}.", "Ask for a new key first.")
    old = device_key.load_or_create(folder)
    following = device_key.open_pair(folder, device_key.NEXT, old.passphrase)
    try:
        move(following.key_path, old.key_path)
    except OSError as error:
        raise IdentityError(f"{old.key_path} cannot be replaced: {error.strerror}.", "Make room there.") from error
    new = device_key.load_or_create(folder)
    if new.storage == "keychain":
        from core.trust import keychain

        keychain.drop(old.text_id)
    return new


def settle_rotation(
    folder: Path,
    lists: Callable[[bytes], bool],
    *,
    use_keychain: bool = sys.platform == "darwin",
    on_wait: Callable[[bool], None] = lambda _: None,
) -> device_key.Identity:
    """The identity in `folder`, swapped if the newest roster lists the next key (`lists` checks a device id).

    Called when a node starts, so that a crash or a late roster doesn't separate it from its key. Raises IdentityError.
    """
    identity = device_key.load_or_create(folder, use_keychain=use_keychain, on_wait=on_wait)
    if lists(identity.device_id) or not os.path.lexists(folder / f"{device_key.NEXT}.pem"):
        return identity
    return finish_rotation(folder) if lists(prepare_rotation(folder).device_id) else identity
