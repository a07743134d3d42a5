"""Saved conversations: the messages and the KV caches of every layer, in one sealed file of this Mac.

In the seal (`core.trust.sealed_files`, purpose "session"), little-endian: "MCK" | format u8 | length u32 |
`SessionFile` as msgpack | for each cache: index u32 | length u64 | SHA-256 32 | its bytes
(`core.models.slicing.cache_state`) | END u32. Caches are numbered as in the whole model, in any order, so a file loads
onto any split.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from core.errors import MaclusterError, SessionError, UsageError
from core.requests.answers import Message
from core.requests.conversations import SavedSession
from core.settings import Home
from core.text import clean_name
from core.trust.file_formats import check_format
from core.trust.private_files import private_folder
from core.trust.sealed_files import DAMAGED, Buffer, SealedContent, forget, forget_if, read_sealed, sealing

PURPOSE: Final = "session"
MAGIC: Final = b"MCK"
FORMAT: Final = Home.sessions.format
SUFFIX: Final = ".mcs"
END: Final = 0xFFFFFFFF

_PREFIX: Final = struct.Struct("<3sB")
_LENGTH: Final = struct.Struct("<I")
_INDEX: Final = struct.Struct("<I")
_CACHE: Final = struct.Struct("<Q32s")
# limit of a header: the tokens and text of a very long conversation
_HEADER_LIMIT: Final = 256 << 20


class SessionFile(msgspec.Struct, frozen=True, kw_only=True):
    """Header of a session file."""

    model: str
    fingerprint: str
    mlx_lm: str  # the version that made the caches
    kv_bits: int | None
    tokens: list[int]  # in the caches
    prefix_hash: bytes  # SHA-256 of `tokens`
    caches: int  # how many there are
    messages: tuple[Message, ...]  # the conversation for people, with the last answer
    created_at: float  # seconds since the epoch
    macs: tuple[str, ...] = ()  # device ids of the Macs that took part


def prefix_hash(tokens: Sequence[int]) -> bytes:
    return sha256(struct.pack(f"<{len(tokens)}I", *tokens)).digest()


def path_of(folder: Path, name: str) -> Path:
    if clean_name(name) != name or name.startswith(".") or not set(name).isdisjoint("/\\:"):
        what = f"{clean_name(name) or 'This'!r} cannot be the name of a session."
        fix = "Take at most 32 letters, digits and signs, none of them / \\ or :, and no dot in front."
        raise UsageError(what, fix)
    for other in folder.glob(f"*{SUFFIX}"):
        if other.stem != name and other.stem.casefold() == name.casefold():
            what = f"The session {other.stem!r} has the same letters: on a Mac's disk both would be one file."
            raise UsageError(what, "Use that name, or quite another one.")
    return folder / f"{name}{SUFFIX}"


def existing(folder: Path, name: str) -> Path:
    path = path_of(folder, name)
    if not path.exists():
        raise UsageError(f"There is no session {name!r}.", "`macluster session list` shows all sessions.")
    return path


@contextmanager
def writing(path: Path, secret: bytes, session: SessionFile) -> Iterator[Callable[[int, Buffer], None]]:
    """Yields a function that takes each cache once, by number; at the end of the block the file is complete. If the
    block raises, or the disk is full, an old file stays as it was. Raises SessionError.
    """
    header = msgspec.msgpack.encode(session)
    left = set(range(session.caches))
    private_folder(path.parent, SessionError)
    SealedContent(path, secret, PURPOSE, MAGIC, FORMAT, SessionError).check_replaceable()
    with sealing(path, secret, PURPOSE, SessionError) as write:

        def put(index: int, data: Buffer) -> None:
            left.remove(index)
            write(_INDEX.pack(index) + _CACHE.pack(len(data), sha256(data).digest()))
            write(data)

        write(_PREFIX.pack(MAGIC, FORMAT) + _LENGTH.pack(len(header)) + header)
        yield put
        if left:
            raise SessionError(f"{len(left)} of {session.caches} layers were not given to {path.name}.")
        write(_INDEX.pack(END))


def reading(path: Path, secret: bytes) -> tuple[SessionFile, Iterator[tuple[int, bytes]]]:
    """The header, and the numbered caches, one in memory at a time. The file is known to be whole only after the last
    one: don't use any before. Raises SessionError, at once or during iteration, if the file is newer, is cut
    or changed, lacks a layer or has one twice, or its tokens don't match their hash.
    """
    stream = _Stream(path, secret)
    magic, version = _PREFIX.unpack(stream.take(_PREFIX.size))
    if magic != MAGIC:
        raise SessionError(f"{path.name} is not a session.", DAMAGED)
    check_format(path.name, version, FORMAT, SessionError)
    (length,) = _LENGTH.unpack(stream.take(_LENGTH.size))
    if length > _HEADER_LIMIT:
        raise SessionError(f"{path.name} claims a header of {length} bytes.", DAMAGED)
    try:
        session = msgspec.msgpack.decode(stream.take(length), type=SessionFile)
        held = prefix_hash(session.tokens)
    except (msgspec.MsgspecError, struct.error, UnicodeDecodeError) as error:
        raise SessionError(f"The header of {path.name} does not decode.", DAMAGED) from error
    if held != session.prefix_hash:
        raise SessionError(f"The tokens in {path.name} don't match its layers.", DAMAGED)
    return session, _caches(stream, session, path.name)


def check_fits(session: SessionFile, *, model: str, fingerprint: str, mlx_lm: str, kv_bits: int | None) -> None:
    """Raises SessionError, unless the session was saved from this model with these KV settings."""
    if session.fingerprint != fingerprint:
        there, here = f"{session.model} ({session.fingerprint[:12]})", f"{model} ({fingerprint[:12]})"
        raise SessionError(f"It was saved from {there}, and {here} is loaded.", f"Load {session.model} first.")
    if session.kv_bits != kv_bits:
        there, here = _bits(session.kv_bits), _bits(kv_bits)
        cure = f"--kv-bits {session.kv_bits}" if session.kv_bits else "no --kv-bits"
        raise SessionError(f"It holds keys and values {there}, and {model} is loaded {here}.", f"Load it with {cure}.")
    if session.mlx_lm != mlx_lm:
        what = f"mlx-lm {session.mlx_lm} made what it holds, and mlx-lm {mlx_lm} runs here."
        raise SessionError(what, "Its text is still good: continue with it, and it is read again.")


def list_sessions(folder: Path, secret: bytes) -> list[SavedSession]:
    """The sessions in `folder`, by name; unreadable ones have a `problem`."""
    return [_listed(path, secret) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def delete_session(folder: Path, name: str) -> None:
    """Delete a session and its key. Raises UsageError if it does not exist, SessionError."""
    forget(existing(folder, name), SessionError)


def forget_shared(folder: Path, secret: bytes, macs: Collection[str]) -> int:
    """Delete the sessions that used one of `macs`; returns how many. Raises SessionError."""
    files = folder.glob(f"*{SUFFIX}")
    return forget_if(files, lambda path: not set(reading(path, secret)[0].macs).isdisjoint(macs), SessionError)


def forget_unfinished(folder: Path) -> None:
    """Remove a file that a killed process left half written. Raises SessionError."""
    for path in folder.glob(f"*{SUFFIX}.tmp"):
        forget(path, SessionError)


class _Stream:
    """The plaintext of a sealed file, in pieces of any size."""

    def __init__(self, path: Path, secret: bytes) -> None:
        self._name = path.name
        self._chunks = read_sealed(path, secret, PURPOSE, SessionError)
        self._held = bytearray()

    def take(self, length: int) -> bytes:
        while len(self._held) < length:
            if not (chunk := next(self._chunks, b"")):
                raise SessionError(f"{self._name} ends in the middle.", DAMAGED)
            self._held += chunk
        taken = bytes(self._held[:length])
        del self._held[:length]
        return taken

    def check_end(self) -> None:
        if self._held or next(self._chunks, b""):
            raise SessionError(f"{self._name} has bytes after its end.", DAMAGED)


def _caches(stream: _Stream, session: SessionFile, name: str) -> Iterator[tuple[int, bytes]]:
    left = set(range(session.caches))
    while (index := _INDEX.unpack(stream.take(_INDEX.size))[0]) != END:
        length, digest = _CACHE.unpack(stream.take(_CACHE.size))
        data = stream.take(length)
        if index not in left:
            raise SessionError(f"Layer cache {index} is in {name} twice, or belongs to no layer.", DAMAGED)
        if sha256(data).digest() != digest:
            raise SessionError(f"Layer cache {index} in {name} was changed.", DAMAGED)
        left.remove(index)
        yield index, data
    if left:
        raise SessionError(f"Layer cache {min(left)} is missing in {name}.", DAMAGED)
    stream.check_end()


def _listed(path: Path, secret: bytes) -> SavedSession:
    name = clean_name(path.name.removesuffix(SUFFIX)) or "?"
    try:
        size = path.stat().st_size
        session = reading(path, secret)[0]
    except (OSError, MaclusterError) as error:
        problem = error if isinstance(error, MaclusterError) else SessionError(f"{name} cannot be read: {error}.")
        return SavedSession(name=name, problem=problem.problem)
    return SavedSession(
        name=name, model=session.model, tokens=len(session.tokens), size_bytes=size, created_at=session.created_at
    )


def _bits(kv_bits: int | None) -> str:
    return f"in {kv_bits} bits" if kv_bits else "in full"
