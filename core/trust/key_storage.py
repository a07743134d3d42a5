"""Move the device key's passphrase between the keychain and a file; the key stays the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from core.errors import IdentityError
from core.settings import KeyPlace
from core.trust.identity import CURRENT, NEXT, certificate_key, device_id_of, load_or_create, read_certificate, text_id
from core.trust.private_files import write_private


def move_key(folder: Path, place: KeyPlace, on_wait: Callable[[bool], None] = lambda _: None) -> bool:
    """Move the passphrase; False if it is there already. It is always in one place; in both, the file counts."""
    if not os.path.lexists(folder / f"{CURRENT}.pem"):
        raise _no_key(place)
    if key_place(folder) == place:
        return False
    from core.trust import keychain  # keyring takes a while, and most only ask where a key is

    identity = load_or_create(folder, on_wait=on_wait)
    names = key_names(folder)
    if place == "file":
        write_private(folder / "passphrase", identity.passphrase)
        for name in names:
            keychain.drop(name)
        return True
    for name in names:
        if not keychain.keep(name, identity.passphrase, on_wait):
            cure = "Unlock it (`security unlock-keychain`), or do this in a desktop session of this Mac."
            raise IdentityError("The keychain does not take the passphrase of the key; it stays in its file.", cure)
    (folder / "passphrase").unlink()
    return True


def key_place(folder: Path) -> KeyPlace:
    if not os.path.lexists(folder / f"{CURRENT}.pem"):
        raise _no_key("file")
    return "file" if os.path.lexists(folder / "passphrase") else "keychain"


def key_names(folder: Path) -> list[str]:
    """Device ids of this Mac's key and of a prepared next one: the names of its items in a keychain."""
    files = [folder / f"{stem}.crt" for stem in (CURRENT, NEXT)]
    return [text_id(device_id_of(certificate_key(read_certificate(file)))) for file in files if os.path.lexists(file)]


def drop_keys(folder: Path) -> None:
    """Delete this Mac's items from the keychain, before its folder is removed."""
    with suppress(IdentityError):  # it has no key, or a damaged one
        if key_place(folder) == "keychain":
            from core.trust import keychain

            for name in key_names(folder):
                keychain.drop(name)


def _no_key(place: KeyPlace) -> IdentityError:
    return IdentityError("This Mac has no key yet.", f"`macluster node --key {place}` makes one that is kept there.")
