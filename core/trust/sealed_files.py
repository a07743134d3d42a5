"""Files at rest, sealed with a key of this Mac (security.md §3), in the shape of STREAM: chunks in order, and an end.

"MCS1" | salt 32 | chunks. A chunk is 64 KiB of plaintext, the last one what is left, in ChaCha20-Poly1305; its nonce is
its number, 11 bytes big-endian, and 1 for the last chunk, else 0. The key is HKDF(secret of this Mac, salt, purpose).
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from core.errors import SealError
from core.trust.file_formats import check_format, first_bytes, format_of
from core.trust.identity import expand, extract
from core.trust.private_files import ErrorClass, folder_to_disk, open_private, replacing, to_disk

FORMAT: Final = 1
MAGIC: Final = b"MCS%d" % FORMAT
SALT_BYTES: Final = 32
HEADER_BYTES: Final = len(MAGIC) + SALT_BYTES
CHUNK: Final = 64 * 1024
SEALED_CHUNK: Final = CHUNK + 16
LENGTH: Final = struct.Struct("<I")  # before each record of a file that grows
DAMAGED: Final = "Delete it, or put it back from a backup of this Mac."

Buffer = bytes | bytearray | memoryview


def key_of(secret: bytes, salt: bytes, purpose: str) -> ChaCha20Poly1305:
    """Key of one file: `secret` is from `Identity.secret`, `salt` the 32 random bytes in its header."""
    return ChaCha20Poly1305(expand(extract(salt, secret), b"macluster/1 " + purpose.encode()))


def write_sealed(
    path: Path, pieces: Iterable[bytes], secret: bytes, purpose: str, error: ErrorClass = SealError
) -> None:
    """Seal `pieces` of any sizes as the file `path` (see `sealing`)."""
    with sealing(path, secret, purpose, error) as write:
        for piece in pieces:
            write(piece)


@contextmanager
def sealing(
    path: Path, secret: bytes, purpose: str, error: ErrorClass = SealError
) -> Iterator[Callable[[Buffer], None]]:
    """Yield a function that writes pieces of a file; after the block it replaces `path`, whose key is destroyed. If the
    block raises or the disk is full, the old file stays unchanged. Raises `error`.
    """
    salt = secrets.token_bytes(SALT_BYTES)
    with renewing(path, error) as file:
        file.write(MAGIC + salt)
        chunks = _Chunks(file, key_of(secret, salt, purpose))
        yield chunks.add
        chunks.finish()


@contextmanager
def renewing(path: Path, error: ErrorClass = SealError) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` after the block, and destroy the old one's key by its salt."""
    old = _open_to_forget(path, error)
    try:
        with replacing(path, error) as file:
            yield file
        if old is not None:
            _blank(old, path, error)
    finally:
        if old is not None:
            os.close(old)


def read_sealed(path: Path, secret: bytes, purpose: str, error: ErrorClass = SealError) -> Iterator[bytes]:
    """Decrypt a file in chunks of 64 KiB. Raises `error` if it was changed or cut, or sealed elsewhere.

    Each chunk is verified, but only the end proves that none is missing: don't act on the content before.
    """
    with open_private(path, error) as file:
        header = file.read(HEADER_BYTES)
        check_format(path.name, format_of(header), FORMAT, error)
        if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
            raise error(f"{path.name} is not a sealed file.", DAMAGED)
        key = key_of(secret, header[len(MAGIC) :], purpose)
        sealed, number = file.read(SEALED_CHUNK), 0
        while True:
            following = file.read(SEALED_CHUNK)
            try:
                chunk = key.decrypt(_nonce(number, not following), sealed, None)
            except InvalidTag:
                what = f"{path.name} was changed or cut, or another Mac sealed it (chunk {number})."
                raise error(what, DAMAGED) from None
            yield chunk
            if not following:
                return
            sealed, number = following, number + 1


def whole_records(data: bytes) -> Iterator[bytes]:
    """The sealed records of a file that grows, after its header; one that a crash cut off is left out."""
    at = HEADER_BYTES
    while at + LENGTH.size <= len(data):
        (length,) = LENGTH.unpack_from(data, at)
        at += LENGTH.size + length
        if at <= len(data):
            yield data[at - length : at]


class SealedContent(NamedTuple):
    """A sealed file of one value: a mark of three letters, its format, and its bytes."""

    path: Path
    secret: bytes
    purpose: str
    mark: bytes
    format: int
    error: ErrorClass

    def read(self) -> bytes:
        data = b"".join(read_sealed(self.path, self.secret, self.purpose, self.error))
        if not data.startswith(self.mark) or len(data) == len(self.mark):
            raise self.error(f"{self.path.name} is not what its name says.", DAMAGED)
        check_format(self.path.name, data[len(self.mark)], self.format, self.error)
        return data[len(self.mark) + 1 :]

    def write(self, content: bytes) -> None:
        self.check_replaceable()
        head = self.mark + bytes([self.format])
        write_sealed(self.path, [head, content], self.secret, self.purpose, self.error)

    def check_replaceable(self) -> None:
        """Raise `error` if the file is there and newer: it, or its content, begins with the mark and a format."""
        head, content = first_bytes(self.path), b""
        check_format(self.path, format_of(head), self.format if head.startswith(self.mark) else FORMAT, self.error)
        with suppress(self.error):  # another damage is no reason to keep the old file
            content = next(read_sealed(self.path, self.secret, self.purpose, self.error), b"")
        if content.startswith(self.mark):
            check_format(self.path.name, content[len(self.mark)], self.format, self.error)

    def forget(self) -> None:
        forget(self.path, self.error)


def forget(path: Path, error: ErrorClass = SealError) -> None:
    """Delete a sealed file and leftovers of a broken write, after overwriting the salt: without it the key is lost.

    Limits: APFS, SSDs, snapshots and backups may keep the old block; there only FileVault protects it. Raises
    `error`.
    """
    for each in (path.with_name(path.name + ".tmp"), path):
        fd = _open_to_forget(each, error)
        if fd is None:
            continue
        try:
            _blank(fd, each, error)
        finally:  # a disk too full to overwrite is no reason to keep what somebody wants gone
            os.close(fd)
            each.unlink(missing_ok=True)
            folder_to_disk(each.parent)


def forget_if(paths: Iterable[Path], is_meant: Callable[[Path], bool], error: ErrorClass = SealError) -> int:
    """Forget the files that are meant, and return their number; an unreadable one reveals nothing, and stays."""
    meant = []
    for path in paths:
        with suppress(error):
            if is_meant(path):
                meant.append(path)
    for path in meant:
        forget(path, error)
    return len(meant)


def _open_to_forget(path: Path, error: ErrorClass) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as problem:
        cure = "A symbolic link is not followed, and a file of another user is not touched: move it away."
        raise error(f"{path} cannot be opened: {problem.strerror}.", cure) from problem


def _blank(fd: int, path: Path, error: ErrorClass) -> None:
    try:
        os.pwrite(fd, bytes(HEADER_BYTES), 0)
        to_disk(fd)
    except OSError as problem:
        what = f"The old key of {path.name} could not be overwritten: {problem.strerror}."
        raise error(what, "The old file is gone; only FileVault protects what the disk may still hold.") from problem


class _Chunks:
    """Seals chunks of 64 KiB, then the rest, which is empty only for an empty file."""

    def __init__(self, file: BinaryIO, key: ChaCha20Poly1305) -> None:
        self._file, self._key = file, key
        self._held = bytearray()
        self._number = 0

    def add(self, piece: Buffer) -> None:
        self._held += piece
        while len(self._held) > CHUNK:
            self._seal(bytes(self._held[:CHUNK]), is_last=False)
            del self._held[:CHUNK]

    def finish(self) -> None:
        self._seal(bytes(self._held), is_last=True)

    def _seal(self, chunk: bytes, *, is_last: bool) -> None:
        self._file.write(self._key.encrypt(_nonce(self._number, is_last), chunk, None))
        self._number += 1


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])
