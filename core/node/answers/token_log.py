"""The log of one answer: its request and committed tokens, sealed on disk before a token is shown.

File: "MCT1" | salt 32 | records. A record is u32 length | ChaCha20-Poly1305 ciphertext; its nonce is the record's
number, its key HKDF(device secret, salt), so files share no key and a record cannot be moved. Unlike a sealed file
(`core.trust.sealed_files`) it has no end: a crash may cut it, and the records before the cut count.

The first record is the `AnswerRecord`. Each other one is, in msgpack: an integer (the next token), a text (shown since
the last one), `MacsJoined`, or `AnswerEnd`. A log without an end can be continued, in a new file with a salt of its
own: after a cut a nonce would be used twice. The name of one with an end says so: it is not read to find others.
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
from core.settings import Home
from core.trust.file_formats import check_format, format_of
from core.trust.private_files import move, open_private, private_folder, to_disk
from core.trust.sealed_files import DAMAGED, HEADER_BYTES, LENGTH, SALT_BYTES, forget, forget_if, key_of, whole_records

MAGIC = b"MCT%d" % Home.tokens.format
PURPOSE = "token log"
ENDED = ".ended.mct"  # ends the name of a log whose answer is complete
KEPT = 100  # logs kept on disk


class AnswerRecord(ChatRequest, frozen=True, kw_only=True):
    """The first record: the request, its tokens, and the Macs that took part."""

    request_id: str
    model: str
    fingerprint: str
    prompt: list[int]
    eos: list[int] = msgspec.field(default_factory=list)
    macs: tuple[str, ...] = ()  # device ids
    messages: tuple[Message, ...] = ()
    max_tokens: int = 0  # 0 in a log that lacks what continuing needs


class MacsJoined(msgspec.Struct, frozen=True, tag="Macs"):
    """More Macs take part from here on, after a change of plan."""

    macs: tuple[str, ...]


class AnswerEnd(msgspec.Struct, frozen=True, tag="Ended"):
    """The answer is complete; one that a problem ended has no such record."""

    reason: FinishReason


Record = int | str | MacsJoined | AnswerEnd


class Written(NamedTuple):
    """The content of a log."""

    record: AnswerRecord
    tokens: list[int]  # committed
    text: str  # shown
    macs: frozenset[str]  # all that took part
    ended: FinishReason | None
    at: float  # last write, seconds since the epoch


def _nonce(number: int) -> bytes:
    return bytes(4) + struct.pack("<Q", number)


class TokenLog:
    """Appends to the log of one answer. Records are written at once, so they survive this process; `syncing` forces
    them to disk, against a power cut. A write that raises OSError wrote nothing, and no later one can succeed.
    """

    def __init__(self, folder: Path, secret: bytes, record: AnswerRecord, suffix: str = ".mct") -> None:
        private_folder(folder, SealError)
        self.path = folder / f"{record.request_id}{suffix}"
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(fd, "wb", buffering=0)
        salt = secrets.token_bytes(SALT_BYTES)
        self._aead = key_of(secret, salt, PURPOSE)
        self._records = 0
        self.unsynced = 0  # tokens not forced to disk yet
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
        """A log that replaces the one of that name, with all its tokens and text, on disk; the old key is forgotten.
        Raises OSError if it cannot be written or there is no old one, which then stays as it is.
        """
        path = folder / f"{record.request_id}.mct"
        old = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            forget(folder / f"{record.request_id}.mct.tmp")  # a crash may have left one
            log = cls(folder, secret, record, suffix=".mct.tmp")
            try:
                for token in tokens:
                    log._write(token)
                log.say(text)
                log._force()
                move(log.path, path)
                os.pwrite(old, bytes(HEADER_BYTES), 0)
                to_disk(old)
            except OSError:
                log.forget()  # by its first name, which it has unless it was moved
                raise
        finally:
            os.close(old)
        log.path = path
        return log

    def append(self, token: int) -> None:
        self._write(token)
        self.unsynced += 1

    def say(self, text: str) -> None:
        if text:
            self._write(text)

    def join(self, macs: Collection[str]) -> None:
        """Record that more Macs take part, on disk before they see anything of the answer."""
        self._write(MacsJoined(tuple(macs)))
        self._force()

    def syncing(self) -> Callable[[], None]:
        """A function that forces all written records to disk, to be called once, in any thread, even after `close`.
        Both raise OSError.
        """
        force = partial(_force_and_close, os.dup(self._file.fileno()))
        self.unsynced = 0
        return force

    def close(self, reason: FinishReason | None = None) -> None:
        """Force the rest to disk; with a `reason` the answer is complete."""
        try:
            if reason:
                self._write(AnswerEnd(reason))
            self._force()
        finally:
            self._file.close()
        if reason:
            self.path = _named_ended(self.path)

    def forget(self) -> None:
        try:
            self._file.close()
        finally:
            forget(self.path)

    def _write(self, record: AnswerRecord | Record) -> None:
        sealed = self._aead.encrypt(_nonce(self._records), msgspec.msgpack.encode(record), MAGIC)
        self._put(LENGTH.pack(len(sealed)) + sealed)
        self._records += 1

    def _put(self, data: bytes) -> None:
        """Write all of `data`. After a partial write nothing more is written: a nonce could be used twice."""
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


class UnloggedAnswer:
    """Stands in for the `TokenLog` of an answer that is not kept: has its methods, and writes nothing."""

    unsynced = 0

    def append(self, token: int) -> None: ...

    def say(self, text: str) -> None: ...

    def join(self, macs: Collection[str]) -> None: ...

    def syncing(self) -> Callable[[], None]:
        return lambda: None

    def close(self, reason: FinishReason | None = None) -> None: ...

    def forget(self) -> None: ...


def _force_and_close(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_token_log(path: Path, secret: bytes) -> Written:
    """Read a log; a record that a crash cut off is left out. Raises SealError if the file is newer, not ours, or was
    changed.
    """
    with open_private(path, SealError) as file:
        at, data = os.fstat(file.fileno()).st_mtime, file.read()
    check_format(path.name, format_of(data), Home.tokens.format, SealError)
    if not data.startswith(MAGIC) or len(data) < HEADER_BYTES:
        raise SealError(f"{path.name} is not a token log.", DAMAGED)
    salt = data[len(MAGIC) : HEADER_BYTES]
    records = list(_records(data, key_of(secret, salt, PURPOSE), path.name))
    if not records:
        raise SealError(f"{path.name} ends before its first record.", DAMAGED)
    try:
        record = msgspec.msgpack.decode(records[0], type=AnswerRecord)
        return _sum(record, (msgspec.msgpack.decode(r, type=Record) for r in records[1:]), at)
    except msgspec.MsgspecError as error:
        raise SealError(f"A record of {path.name} does not decode.", DAMAGED) from error


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


def unfinished(folder: Path, secret: bytes, spared: Collection[str] = ()) -> list[Written]:
    """The answers that can be continued, the newest first, except of the requests `spared`."""
    found = []
    for path in folder.glob("*.mct"):
        if path.name.endswith(ENDED) or path.stem in spared:
            continue
        with contextlib.suppress(SealError):
            written = read_token_log(path, secret)
            if written.ended is not None:  # an older macluster wrote it, or a crash came before its name
                _named_ended(path)
            elif written.record.max_tokens:
                found.append(written)
    return sorted(found, key=lambda written: written.at, reverse=True)


def _named_ended(path: Path) -> Path:
    ended = path.with_suffix(ENDED)
    with contextlib.suppress(FileNotFoundError):  # another thread has named it
        os.replace(path, ended)
    return ended


def old_logs(folder: Path, kept: int = KEPT) -> list[Path]:
    """All logs but the newest `kept` by file date. A wrong clock may put a running answer's log among them."""
    logs = sorted(folder.glob("*.mct"), key=_written_ns)
    return logs[: max(0, len(logs) - kept)]


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # deleted meanwhile
        return 0


def forget_shared(folder: Path, secret: bytes, macs: Collection[str], spared: Collection[str] = ()) -> int:
    """Delete the logs of answers in which one of `macs` took part, except of the requests `spared`. Returns their
    number. Raises SealError.
    """
    logs = (path for path in folder.glob("*.mct") if path.stem not in spared)
    return forget_if(logs, lambda path: not read_token_log(path, secret).macs.isdisjoint(macs))


def _records(data: bytes, aead: ChaCha20Poly1305, name: str) -> Iterator[bytes]:
    for number, sealed in enumerate(whole_records(data)):
        try:
            yield aead.decrypt(_nonce(number), sealed, MAGIC)
        except InvalidTag:
            raise SealError(f"Record {number} of {name} was changed.", DAMAGED) from None
