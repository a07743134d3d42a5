"""The Mac's keychain as the place of the device key's passphrase, where there is one that works.

Only the keychain itself counts: another back end of `keyring` may keep passwords in a plain file, forget them (null) or
refuse them (fail), and the trust screen would call it a keychain all the same.
"""

from __future__ import annotations

import configparser
from typing import Final

import keyring
from keyring.backends import macOS
from keyring.errors import KeyringError

from core.errors import IdentityError

SERVICE: Final = "macluster"

# What a keyring.cfg or an environment variable that names no proper back end makes of `get_keyring`.
_MISCONFIGURED: Final = (
    KeyringError,
    ImportError,
    AttributeError,
    TypeError,
    ValueError,
    RuntimeError,
    OSError,
    configparser.Error,
)
# ValueError: an item under our name that is no UTF-8, so none of ours.
_REFUSED: Final = (KeyringError, ValueError, OSError)


def keep(name: str, passphrase: bytes) -> bool:
    """Whether `passphrase` is in the keychain now, and can be read from it again. False where there is none or it is
    locked, as over SSH, under launchd and on Linux: that is normal, and no error.
    """
    keychain = _keychain()
    if keychain is None:
        return False
    try:
        keychain.set_password(SERVICE, name, passphrase.decode())
        return bool(keychain.get_password(SERVICE, name) == passphrase.decode())
    except _REFUSED:
        return False


def recall(name: str) -> bytes:
    """The passphrase kept for `name`. Raises IdentityError with the cure."""
    keychain = _keychain()
    if keychain is None:
        cure = "Put `passphrase` back from a backup; on a Mac, unset PYTHON_KEYRING_BACKEND and look at keyringrc.cfg."
        raise IdentityError(f"Mac {name[:8]} has no file `passphrase`, and there is no keychain to ask.", cure)
    try:
        passphrase = keychain.get_password(SERVICE, name)
    except _REFUSED as error:
        cure = "Unlock it (`security unlock-keychain`), or start macluster from a login session."
        raise IdentityError(f"The keychain that guards the device key is locked ({error}).", cure) from error
    if passphrase is None:
        cure = "Put it back from a backup, or remove the identity folder: this Mac then gets a new key and is to pair."
        raise IdentityError(f"The keychain holds no passphrase for Mac {name[:8]}.", cure)
    return str(passphrase).encode()


def drop(name: str) -> None:
    """Take the item of a key that is no more out of the keychain. It may stay: that key's file is gone."""
    keychain = _keychain()
    if keychain is not None:
        try:
            keychain.delete_password(SERVICE, name)
        except _REFUSED:
            return


def _keychain() -> macOS.Keyring | None:
    try:
        backend = keyring.get_keyring()
    except _MISCONFIGURED:
        return None
    return backend if isinstance(backend, macOS.Keyring) else None
