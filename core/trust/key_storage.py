"""Move the device key's passphrase between the keychain and a file; the key stays the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from core.errors import IdentityError
from core.settings import KeyPlace
from core.trust.identity import CURRENT, NEXT, load_or_create, open_pair
from core.trust.private_files import write_private


def move_key(folder: Path, place: KeyPlace, on_wait: Callable[[bool], None] = lambda _: None) -> bool:
    """Move the passphrase; False if it is there already. It is always in one place; in both, the file counts."""
    if not os.path.lexists(folder / f"{CURRENT}.pem"):
        raise _no_key(place)
    if key_place(folder) == place:
        return False
    from core.trust import keychain  # keyring takes a while, and most only ask where a key is

    identity = load_or_create(folder, on_wait=on_wait)
    stems = (CURRENT, NEXT) if os.path.lexists(folder / f"{NEXT}.crt") else (CURRENT,)
    names = [open_pair(folder, stem, identity.passphrase).text_id for stem in stems]
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


def _no_key(place: KeyPlace) -> IdentityError:
    return IdentityError("This Mac has no key yet.", f"`macluster node --key {place}` makes one that is kept there.")
