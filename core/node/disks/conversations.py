"""Stored conversations: their text, sealed on this Mac, one file each.

Sealed content (`core.trust.sealed_files`, purpose "conversation"): "MCV" | format u8 | `Conversation` as msgpack. The
file name is the conversation's random id, which the content repeats, so files can't be swapped. The caches on the Macs
are stored separately, as a session (`core.node.answers.saved_sessions`).
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from time import time
from typing import Final

import msgspec

from core.errors import MaclusterError, SessionError, UsageError
from core.requests.conversations import Conversation, ConversationId, ConversationInfo, ConversationTitle, SearchText
from core.settings import Home
from core.trust.file_formats import check_format
from core.trust.private_files import private_folder
from core.trust.sealed_files import DAMAGED, check_replaceable, forget, read_sealed, write_sealed

PURPOSE: Final = "conversation"
MAGIC: Final = b"MCV"
FORMAT: Final = Home.conversations.format
SUFFIX: Final = ".mcv"
MAX_CONVERSATIONS: Final = 1000
MAX_BYTES: Final = 8 << 20
ENDING: Final = 600  # characters

_PREFIX: Final = struct.Struct("<3sB")


class Conversations:
    """Commands on stored conversations; each raises a MaclusterError. `limit`: maximum number of conversations."""

    def __init__(self, folder: Path, secret: bytes, limit: int = MAX_CONVERSATIONS) -> None:
        self._folder, self._secret, self._limit = folder, secret, limit
        self._writing = asyncio.Lock()

    async def all(self) -> list[ConversationInfo]:
        """All conversations of this Mac, newest first; unreadable ones with the reason."""
        return await self.holding(SearchText(text=""))

    async def holding(self, wanted: SearchText) -> list[ConversationInfo]:
        """Conversations that contain a text in any branch, ignoring case, newest first; skips unreadable ones."""
        found = await asyncio.to_thread(_listed, self._folder, self._secret, wanted.text.casefold())
        return sorted(found, key=lambda each: each.changed_at, reverse=True)

    async def read(self, wanted: ConversationId) -> Conversation:
        """Read a conversation. Raises UsageError if it doesn't exist, SessionError."""
        return await asyncio.to_thread(_read, self._existing(wanted.id), self._secret)

    async def write(self, conversation: Conversation) -> ConversationInfo:
        """Create or replace a conversation. Raises UsageError if it is too long or there are too many, SessionError."""
        async with self._writing:
            return await asyncio.to_thread(self._put, conversation)

    async def rename(self, wanted: ConversationTitle) -> ConversationInfo:
        """Change a conversation's title. Raises UsageError if it doesn't exist, SessionError."""
        async with self._writing:
            old = await asyncio.to_thread(_read, self._existing(wanted.id), self._secret)
            return await asyncio.to_thread(self._put, msgspec.structs.replace(old, title=wanted.title))

    async def delete(self, wanted: ConversationId) -> None:
        """Delete a conversation and its key. Raises UsageError if it doesn't exist, SessionError."""
        async with self._writing:
            path = self._existing(wanted.id)
            await asyncio.to_thread(forget, path, SessionError)

    def _put(self, conversation: Conversation) -> ConversationInfo:
        data = _PREFIX.pack(MAGIC, FORMAT) + msgspec.msgpack.encode(conversation)
        if len(data) > MAX_BYTES:
            what = f"The conversation has {len(data)} bytes; the limit is {MAX_BYTES}."
            raise UsageError(what, "Start a new one; this one can be exported.")
        path = self._path(conversation.id)
        private_folder(self._folder, SessionError)
        if not path.exists() and len(list(self._folder.glob(f"*{SUFFIX}"))) >= self._limit:
            raise UsageError(f"There are already {self._limit} conversations.", "Delete some of them.")
        check_replaceable(path, self._secret, PURPOSE, MAGIC, FORMAT, SessionError)
        write_sealed(path, [data], self._secret, PURPOSE, SessionError)
        return _info(conversation, path.stat().st_size)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{SUFFIX}"

    def _existing(self, name: str) -> Path:
        path = self._path(name)
        if not path.exists():
            raise UsageError("That conversation is not on this Mac.", "It may have been deleted meanwhile.")
        return path


def _read(path: Path, secret: bytes) -> Conversation:
    """Raise SessionError for a damaged or newer file, another Mac's, or another conversation's under this name."""
    data = bytearray()
    for chunk in read_sealed(path, secret, PURPOSE, SessionError):
        data += chunk
        if len(data) > MAX_BYTES:
            raise SessionError(f"{path.name} is larger than any conversation.", DAMAGED)
    if len(data) < _PREFIX.size or not data.startswith(MAGIC):
        raise SessionError(f"{path.name} is not a conversation.", DAMAGED)
    check_format(path.name, data[len(MAGIC)], FORMAT, SessionError)
    try:
        conversation = msgspec.msgpack.decode(memoryview(data)[_PREFIX.size :], type=Conversation)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SessionError(f"The content of {path.name} does not decode.", DAMAGED) from error
    if conversation.id != path.name.removesuffix(SUFFIX):
        raise SessionError(f"{path.name} holds another conversation than its name says.", DAMAGED)
    return conversation


def _listed(folder: Path, secret: bytes, text: str) -> list[ConversationInfo]:
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        name = path.name.removesuffix(SUFFIX)
        try:
            checked = msgspec.convert({"id": name}, ConversationId)
        except msgspec.ValidationError:  # not a name from macluster
            continue
        try:
            conversation = _read(path, secret)
            if _holds(conversation, text):
                found.append(_info(conversation, path.stat().st_size))
        except (OSError, MaclusterError) as error:
            if text:
                continue
            problem = error if isinstance(error, MaclusterError) else SessionError(f"It cannot be read: {error}.")
            found.append(ConversationInfo(id=checked.id, changed_at=_written_at(path), problem=problem.problem))
    return found


def _holds(conversation: Conversation, text: str) -> bool:
    said = (turn.text for turn in conversation.turns)
    return any(text in part.casefold() for part in (conversation.title, conversation.model, conversation.draft, *said))


def _info(conversation: Conversation, size_bytes: int) -> ConversationInfo:
    shown = conversation.shown
    last = shown[-1] if shown else None
    return ConversationInfo(
        id=conversation.id,
        title=conversation.title,
        model=conversation.model,
        created_at=conversation.created_at,
        changed_at=conversation.changed_at,
        messages=len(shown),
        tokens=sum(turn.tokens for turn in shown),
        size_bytes=size_bytes,
        ending=last.text[-ENDING:] if last else "",
        last_request=last.request_id if last else "",
        has_draft=bool(conversation.draft),
    )


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time()
