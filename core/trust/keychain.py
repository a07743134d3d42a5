"""Store the device key's passphrase in the Mac's keychain.

Other backends of `keyring` are refused: they may store passwords in a plain file, forget or reject them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import Final, TypeVar

import keyring
from keyring.backends import macOS
from keyring.errors import KeyringError

from core.errors import IdentityError

_T = TypeVar("_T")

SERVICE: Final = "macluster"
ASKS_S: Final = 3.0  # a keychain that is open answers in milliseconds
PATIENCE_S: Final = 120.0

# ValueError: an item under our name that is no UTF-8, so none of ours.
_REFUSED: Final = (KeyringError, ValueError, OSError)

# what Apple's number in the words of keyring means to a person, and what to do
_MEANING: Final = {
    "-25308": (
        "The keychain that guards the device key is locked, or there is no desktop session in which it could ask",
        "Unlock it (`security unlock-keychain`), or start macluster in a desktop session. For SSH and for a service, "
        "`macluster trust key file` in a desktop session moves the key out of it.",
    ),
    "-128": (
        "macOS asked whether macluster may use the keychain, and the answer was no",
        'Start it again and choose "Always Allow", or move the key into a file: `macluster trust key file`.',
    ),
    "-25293": (
        "The password that was given for the keychain that guards the device key is wrong",
        "Start it again with the password of this account, or unlock it first (`security unlock-keychain`).",
    ),
}
_ELSE: Final = (
    "The keychain that guards the device key cannot be read",
    "Unlock it (`security unlock-keychain`), or start macluster from a login session.",
)

OnWait = Callable[[bool], None]


def keep(name: str, passphrase: bytes, on_wait: OnWait = lambda _: None) -> bool:
    """Store `passphrase` and read it back. False if the keychain is missing or locked, as over SSH and on Linux."""
    keychain = _keychain()
    if keychain is None:
        return False

    def kept() -> bool:
        keychain.set_password(SERVICE, name, passphrase.decode())
        return bool(keychain.get_password(SERVICE, name) == passphrase.decode())

    try:
        return _patiently(kept, on_wait)
    except _REFUSED:
        return False


def recall(name: str, on_wait: OnWait = lambda _: None) -> bytes:
    """The passphrase of `name`. `on_wait` gets True while macOS asks the user, then False. Raises IdentityError."""
    keychain = _keychain()
    if keychain is None:
        cure = "Put `passphrase` back from a backup; on a Mac, unset PYTHON_KEYRING_BACKEND and look at keyringrc.cfg."
        raise IdentityError(f"Mac {name[:8]} has no file `passphrase`, and there is no keychain to ask.", cure)
    try:
        passphrase = _patiently(lambda: keychain.get_password(SERVICE, name), on_wait)
    except _REFUSED as error:
        what, cure = next((reported for number, reported in _MEANING.items() if f"({number}," in str(error)), _ELSE)
        raise IdentityError(f"{what} ({error}).", cure) from error
    if passphrase is None:
        cure = "Put it back from a backup, or remove the identity folder: this Mac then gets a new key and is to pair."
        raise IdentityError(f"The keychain holds no passphrase for Mac {name[:8]}.", cure)
    return str(passphrase).encode()


def drop(name: str) -> None:
    """Delete the item of an old key. It may remain: that key's file is gone."""
    if keychain := _keychain():
        with suppress(*_REFUSED):
            keychain.delete_password(SERVICE, name)


def _patiently(call: Callable[[], _T], on_wait: OnWait) -> _T:
    """Run `call` in a thread that can be abandoned: macOS may wait for the user forever. Raises TimeoutError."""
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except Exception as error:  # raised again in the waiting thread
            done.set_exception(error)

    Thread(target=run, name="keychain", daemon=True).start()
    try:
        return done.result(ASKS_S)
    except TimeoutError:
        if done.done():
            raise
    on_wait(True)
    try:
        return done.result(PATIENCE_S)
    except TimeoutError as error:
        raise TimeoutError("macOS asked about it and got no answer") from error
    finally:
        on_wait(False)


def _keychain() -> macOS.Keyring | None:
    try:
        backend = keyring.get_keyring()
    except Exception:  # a keyring.cfg or an environment variable may name no proper back end
        return None
    return backend if isinstance(backend, macOS.Keyring) else None
