"""The truth about an answer: prompt and committed tokens, sealed on disk before a token is shown. The newest hundred
are kept, and those of answers that run, and none in which a Mac took part that was revoked.

File: "MCT1" | salt 32 | records. A record is u32 length | ChaCha20-Poly1305 ciphertext; its nonce is the record's
number, its key HKDF(device secret, salt), so files share no key and a record cannot be moved. Unlike a sealed file
(`core.trust.sealed_files`) it has no end: a crash may cut it, and what is before the cut counts.

The first record is the `AnswerRecord`; each other one, in msgpack, an integer: the next token; a text: what is shown
since the one before; `MacsJoined`; or `AnswerEnd`. Without that the answer can be continued: in a new file, with a salt
of its own, for behind a cut a nonce would be used twice.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from core.errors import SealError
from core.events import FinishReason
from core.requests.answers import ChatRequest, Message
from core.trust.private_files import move, open_private, private_folder, to_disk
from core.trust.sealed_files import DAMAGED, HEADER_BYTES, SALT_BYTES, forget, key_of

MAGIC = b"MCT1"
PURPOSE = "token log"
KEPT = 100

_LENGTH = struct.Struct("<I")


class AnswerRecord(ChatRequest, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The first record: what was asked, its tokens, and the device ids of the Macs that took part. `max_tokens` is 0 in
    a log that is older than the rest of what it takes to continue an answer.
    """

    request_id: str
    model: str
    fingerprint: str
    prompt: list[int]
    eos: list[int] = msgspec.field(default_factory=list)
    macs: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()
    max_tokens: int = 0


class MacsJoined(msgspec.Struct, frozen=True, tag="Macs"):
    """These take part from here on, since there is another plan."""

    macs: tuple[str, ...]


class AnswerEnd(msgspec.Struct, frozen=True, tag="Ended"):
    """Nothing is missing; an answer that a problem ended has no such record."""

    reason: FinishReason


Record = int | str | MacsJoined | AnswerEnd


class Written(NamedTuple):
    """What a log holds: the committed `tokens`, what was shown of them, and all Macs that took part. `at`: when the
    last record was written, seconds since the epoch.
    """

    record: AnswerRecord
    tokens: list[int]
    text: str
    macs: frozenset[str]
    ended: FinishReason | None
    at: float


def _nonce(number: int) -> bytes:
    return bytes(4) + struct.pack("<Q", number)


class TokenLog:
    """Appends what comes of one answer, from its `record` on; it is written at once, so that it outlives this process,
    and forced to disk by `syncing`, so that it outlives the power. `unsynced` tokens are not forced yet. What raises
    OSError was not written, and nothing can be after it.
    """

    def __init__(self, folder: Path, secret: bytes, record: AnswerRecord, suffix: str = ".mct") -> None:
        private_folder(folder, SealError)
        self.path = folder / f"{record.request_id}{suffix}"
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(fd, "wb", buffering=0)
        salt = secrets.token_bytes(SALT_BYTES)
        self._aead = key_of(secret, salt, PURPOSE)
        self._records = 0
        self.unsynced = 0
        self._failed: OSError | None = None
        try:
            self._put(MAGIC + salt)
            self._write(record)
        except OSError:
            with contextlib.suppress(OSError, SealError):
                self.forget()
            raise

    @classmethod
    def going_on(cls, folder: Path, secret: bytes, record: AnswerRecord, tokens: Sequence[int], text: str) -> TokenLog:
        """A log that takes the place of the one of that name once all that is written is in it, on disk; the key of the
        old one is forgotten. The old one stays as it is where this raises OSError, which says that it could not be
        written, or that there is none.
        """
        path = folder / f"{record.request_id}.mct"
        old = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            log = cls._beside(folder, secret, record, tokens, text)
            try:
                move(log.path, path)
                os.pwrite(old, bytes(HEADER_BYTES), 0)
                to_disk(old)
            except OSError:
                log.close()
                raise
        finally:
            os.close(old)
        log.path = path
        return log

    @classmethod
    def _beside(cls, folder: Path, secret: bytes, record: AnswerRecord, tokens: Sequence[int], text: str) -> TokenLog:
        forget(folder / f"{record.request_id}.mct.tmp")  # a crash may have left one
        log = cls(folder, secret, record, suffix=".mct.tmp")
        try:
            for token in tokens:
                log._write(token)
            log.say(text)
            log._force()
        except OSError:
            log.forget()
            raise
        return log

    def append(self, token: int) -> None:
        """Commit one token."""
        self._write(token)
        self.unsynced += 1

    def say(self, text: str) -> None:
        """Text is shown."""
        if text:
            self._write(text)

    def join(self, macs: Collection[str]) -> None:
        """Further Macs take part; that is on disk before they see anything of the answer."""
        self._write(MacsJoined(tuple(macs)))
        self._force()

    def syncing(self) -> Callable[[], None]:
        """What forces to disk all that is written now, in any thread and once, be the log closed meanwhile or not. Both
        raise OSError.
        """
        force = partial(_force_and_close, os.dup(self._file.fileno()))
        self.unsynced = 0
        return force

    def close(self, reason: FinishReason | None = None) -> None:
        """Force the rest to disk; with a `reason` the answer has ended for good."""
        try:
            if reason:
                self._write(AnswerEnd(reason))
            self._force()
        finally:
            self._file.close()

    def forget(self) -> None:
        """Close and delete it, and forget its key (`core.trust.sealed_files.forget`, which also serves for closed
        ones).
        """
        try:
            self._file.close()
        finally:
            forget(self.path)

    def _write(self, record: AnswerRecord | Record) -> None:
        sealed = self._aead.encrypt(_nonce(self._records), msgspec.msgpack.encode(record), MAGIC)
        self._put(_LENGTH.pack(len(sealed)) + sealed)
        self._records += 1

    def _put(self, data: bytes) -> None:
        """A disk may take half of it: what came next would be lost with that, or use its nonce again."""
        if self._failed:
            raise self._failed
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._failed = error
            raise

    def _force(self) -> None:
        os.fsync(self._file.fileno())
        self.unsynced = 0


def _force_and_close(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_token_log(path: Path, secret: bytes) -> Written:
    """What was asked, and what came of it; a record cut off by a crash is left out.

    Raises SealError if the file is not ours or a record was changed.
    """
    with open_private(path, SealError) as file:
        at, data = os.fstat(file.fileno()).st_mtime, file.read()
    if not data.startswith(MAGIC) or len(data) < HEADER_BYTES:
        raise SealError(f"{path.name} is not a token log.", DAMAGED)
    salt = data[len(MAGIC) : HEADER_BYTES]
    records = list(_records(data[HEADER_BYTES:], key_of(secret, salt, PURPOSE), path.name))
    if not records:
        raise SealError(f"{path.name} ends before its first record.", DAMAGED)
    try:
        record = msgspec.msgpack.decode(records[0], type=AnswerRecord)
        return _sum(record, (msgspec.msgpack.decode(r, type=Record) for r in records[1:]), at)
    except msgspec.MsgspecError as error:
        raise SealError(f"{path.name} is of another version of macluster.", DAMAGED) from error


def _sum(record: AnswerRecord, records: Iterator[Record], at: float) -> Written:
    tokens: list[int] = []
    shown: list[str] = []
    macs = set(record.macs)
    ended: FinishReason | None = None
    for entry in records:
        match entry:
            case int():
                tokens.append(entry)
            case str():
                shown.append(entry)
            case MacsJoined(macs=more):
                macs.update(more)
            case AnswerEnd(reason=reason):
                ended = reason
    return Written(record, tokens, "".join(shown), frozenset(macs), ended, at)


def unfinished(folder: Path, secret: bytes) -> list[Written]:
    """What can be continued, the newest first; also an answer that is being written now."""
    found = []
    for path in folder.glob("*.mct"):
        with contextlib.suppress(SealError):
            written = read_token_log(path, secret)
            if written.ended is None and written.record.max_tokens:
                found.append(written)
    return sorted(found, key=lambda written: written.at, reverse=True)


def old_logs(folder: Path, kept: int = KEPT) -> list[Path]:
    """All logs but the newest, by their dates, which clocks set that may have been wrong: one of them may be of an
    answer that runs.
    """
    logs = sorted(folder.glob("*.mct"), key=_written_ns)
    return logs[: max(0, len(logs) - kept)]


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # somebody else forgets it now
        return 0


def forget_shared(folder: Path, secret: bytes, macs: Collection[str], spared: Collection[str] = ()) -> int:
    """Forget the logs of answers in which one of `macs` took part, but for the requests `spared`; how many there were.
    Raises SealError.
    """
    shared = []
    for path in folder.glob("*.mct"):
        if path.stem in spared:
            continue
        with contextlib.suppress(SealError):  # one that cannot be read tells nobody anything
            if not read_token_log(path, secret).macs.isdisjoint(macs):
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
