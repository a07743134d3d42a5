"""The truth about an answer: prompt and committed tokens, sealed on disk before a token is shown. The newest hundred
are kept, and none in which a Mac took part that was revoked.

File: "MCT1" | salt 32 | records. A record is u32 length | ChaCha20-Poly1305 ciphertext; its nonce is the record's
number, its key HKDF(device secret, salt), so files share no key and a record cannot be moved. Unlike a sealed file
(`core.trust.sealed`) it has no end: a crash may cut it, and what is before the cut counts.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from time import monotonic

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from core.errors import SealError
from core.requests import Sampling
from core.trust.files import open_private, private_folder
from core.trust.sealed import DAMAGED, HEADER_BYTES, SALT_BYTES, forget, key_of

MAGIC = b"MCT1"
PURPOSE = "token log"
KEPT = 100
SYNC_EVERY_TOKENS = 16
SYNC_EVERY_S = 1.0

_LENGTH = struct.Struct("<I")


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The first record: what was asked, and the device ids of the Macs that took part."""

    request_id: str
    model: str
    fingerprint: str
    prompt: list[int]
    sampling: Sampling = Sampling()
    macs: tuple[str, ...] = ()


def _nonce(number: int) -> bytes:
    return bytes(4) + struct.pack("<Q", number)


class TokenLog:
    """Appends the tokens of one answer; written at once, forced to disk every 16 tokens or every second."""

    def __init__(self, folder: Path, secret: bytes, opening: Opening) -> None:
        private_folder(folder, SealError)
        self.path = folder / f"{opening.request_id}.mct"
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(fd, "wb")
        salt = secrets.token_bytes(SALT_BYTES)
        self._aead = key_of(secret, salt, PURPOSE)
        self._records = 0
        self._unsynced = 0
        self._synced_at = monotonic()
        try:
            self._file.write(MAGIC + salt)
            self._write(msgspec.msgpack.encode(opening))
            self._sync()
        except OSError:
            with contextlib.suppress(OSError, SealError):
                self.forget()
            raise

    def append(self, token: int) -> None:
        """Commit one token."""
        self._write(msgspec.msgpack.encode(token))
        self._unsynced += 1
        if self._unsynced >= SYNC_EVERY_TOKENS or monotonic() - self._synced_at >= SYNC_EVERY_S:
            self._sync()

    def close(self) -> None:
        """Force the rest to disk."""
        try:
            self._sync()
        finally:
            self._file.close()

    def forget(self) -> None:
        """Close and delete it, and forget its key (`core.trust.sealed.forget`, which also serves for closed ones)."""
        try:
            self._file.close()
        finally:
            forget(self.path)

    def _write(self, record: bytes) -> None:
        sealed = self._aead.encrypt(_nonce(self._records), record, MAGIC)
        self._file.write(_LENGTH.pack(len(sealed)) + sealed)
        self._file.flush()
        self._records += 1

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._unsynced = 0
        self._synced_at = monotonic()


def read_token_log(path: Path, secret: bytes) -> tuple[Opening, list[int]]:
    """What was asked and the tokens committed; a record cut off by a crash is left out.

    Raises SealError if the file is not ours or a record was changed.
    """
    with open_private(path, SealError) as file:
        data = file.read()
    if not data.startswith(MAGIC) or len(data) < HEADER_BYTES:
        raise SealError(f"{path.name} is not a token log.", DAMAGED)
    salt = data[len(MAGIC) : HEADER_BYTES]
    records = list(_records(data[HEADER_BYTES:], key_of(secret, salt, PURPOSE), path.name))
    if not records:
        raise SealError(f"{path.name} ends before its first record.", DAMAGED)
    return msgspec.msgpack.decode(records[0], type=Opening), [msgspec.msgpack.decode(r, type=int) for r in records[1:]]


def forget_old(folder: Path, kept: int = KEPT) -> None:
    """Forget all logs but the newest. Raises SealError."""
    logs = sorted(folder.glob("*.mct"), key=_written_ns)
    for path in logs[: max(0, len(logs) - kept)]:
        forget(path)


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # somebody else forgets it now
        return 0


def forget_shared(folder: Path, secret: bytes, macs: Collection[str]) -> int:
    """Forget the logs of answers in which one of `macs` took part; how many there were. Raises SealError."""
    shared = []
    for path in folder.glob("*.mct"):
        with contextlib.suppress(SealError):  # one that cannot be read tells nobody anything
            if not set(read_token_log(path, secret)[0].macs).isdisjoint(macs):
                shared.append(path)
    for path in shared:
        forget(path)
    return len(shared)


def _records(data: bytes, aead: ChaCha20Poly1305, name: str) -> Iterator[bytes]:
    number = at = 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        sealed = data[at + _LENGTH.size : at + _LENGTH.size + length]
        if len(sealed) < length:
            return
        try:
            yield aead.decrypt(_nonce(number), sealed, MAGIC)
        except InvalidTag:
            raise SealError(f"Record {number} of {name} was changed.", DAMAGED) from None
        at += _LENGTH.size + length
        number += 1
