"""Stored conversations: their text, sealed on this Mac (`conversation_file`), and a sealed index for searches.
The caches on the Macs are stored separately, as a session (`core.node.answers.saved_sessions`).

An index file has the conversations whose ids begin with its digit: "MCI" | format u8 | an `_Indexed` by id, in msgpack.
It is replaced, under another key, when a list finds one of them changed, and made again where it is missing.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from core.errors import MaclusterError, SessionError, UsageError
from core.node.disks.conversation_file import DRAFT_SUFFIX, FORMAT, SUFFIX, ConversationFile
from core.requests.conversations import Conversation, ConversationId, ConversationInfo, SearchText
from core.trust.sealed_files import SealedContent

ENDING: Final = 600  # characters
_NAME: Final = re.compile(rf"([0-9a-f]{{32}})({SUFFIX}|{DRAFT_SUFFIX})")

# time of the last write, size and inode of both files of a conversation
Stamp = tuple[int, ...]


class _Indexed(msgspec.Struct, frozen=True, array_like=True):
    """A conversation in the index."""

    stamp: Stamp  # of its files when they were read
    info: ConversationInfo
    text: memoryview  # all that a search looks at, without case, in UTF-8


_entries = msgspec.msgpack.Decoder(dict[str, _Indexed])


class Conversations:
    """Commands on stored conversations; each raises a MaclusterError."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        self._folder, self._secret = folder, secret
        self._files: dict[str, ConversationFile] = {}  # read or written since the start
        self._busy = asyncio.Lock()

    async def all(self) -> list[ConversationInfo]:
        """All conversations of this Mac, newest first; unreadable ones with the reason."""
        return await self.holding(SearchText(text=""))

    async def holding(self, wanted: SearchText) -> list[ConversationInfo]:
        """Conversations that contain a text in any branch, ignoring case, newest first; skips unreadable ones."""
        text = wanted.text.casefold().encode()
        async with self._busy:
            entries = await asyncio.to_thread(self._entries)
            found = [each.info for each in entries if not text or text in bytes(each.text)]
        return sorted(found, key=lambda each: each.changed_at, reverse=True)

    async def read(self, wanted: ConversationId) -> Conversation:
        """Read a conversation. Raises UsageError if it doesn't exist, SessionError."""
        async with self._busy:
            return await asyncio.to_thread(self._existing(wanted.id).read)

    async def write(self, said: Conversation) -> None:
        """Create, replace or change a conversation. Raises UsageError if it isn't what is changed, SessionError."""
        async with self._busy:
            file = self._existing(said.id) if said.keep else self._file(said.id)
            await asyncio.to_thread(file.write, said)

    async def delete(self, wanted: ConversationId) -> None:
        """Delete a conversation and its key. Raises UsageError if it doesn't exist, SessionError."""
        async with self._busy:
            file = self._existing(wanted.id)
            del self._files[wanted.id]
            await asyncio.to_thread(self._index(wanted.id[0]).forget)
            await asyncio.to_thread(file.forget)

    def _file(self, name: str) -> ConversationFile:
        return self._files.setdefault(name, ConversationFile(self._folder, name, self._secret))

    def _existing(self, name: str) -> ConversationFile:
        file = self._file(name)
        if not file.path.exists():
            raise UsageError("That conversation is not on this Mac.", "It may have been deleted meanwhile.")
        return file

    def _entries(self) -> list[_Indexed]:
        """An entry for each conversation; only those whose files changed since the last time are read."""
        found: list[_Indexed] = []
        for digit, stamps in _stamps(self._folder).items():
            known: dict[str, _Indexed] = {}
            with suppress(SessionError, msgspec.MsgspecError):  # it is made again
                known = _entries.decode(self._index(digit).read())
            now = {
                name: known[name] if name in known and known[name].stamp == stamp else self._entry(name, stamp)
                for name, stamp in stamps.items()
            }
            readable = {name: entry for name, entry in now.items() if entry.info.problem is None}
            if readable != known:
                with suppress(SessionError):  # the list is right without it
                    self._index(digit).write(msgspec.msgpack.encode(readable))
            found += now.values()
        return found

    def _entry(self, name: str, stamp: Stamp) -> _Indexed:
        try:
            conversation = ConversationFile(self._folder, name, self._secret).read()
        except MaclusterError as error:
            info = ConversationInfo(id=name, changed_at=stamp[0] / 1e9, problem=error.problem)
            return _Indexed(stamp, info, memoryview(b""))
        said = (conversation.title, conversation.model, conversation.draft, *(turn.text for turn in conversation.turns))
        return _Indexed(stamp, _info(conversation, stamp[1]), memoryview("\0".join(said).casefold().encode()))

    def _index(self, digit: str) -> SealedContent:
        path = self._folder / f"{digit}.mci"
        return SealedContent(path, self._secret, "conversation index", b"MCI", FORMAT, SessionError)


def _stamps(folder: Path) -> dict[str, dict[str, Stamp]]:
    """Find the files of each conversation, by the first digit of its id."""
    found: dict[str, dict[str, Stamp]] = {digit: {} for digit in "0123456789abcdef"}
    drafts: dict[str, Stamp] = {}
    with suppress(OSError), os.scandir(folder) as files:
        for file in files:
            if match := _NAME.fullmatch(file.name):
                stamps = drafts if match[2] == DRAFT_SUFFIX else found[file.name[0]]
                about = file.stat(follow_symlinks=False)
                stamps[match[1]] = (about.st_mtime_ns, about.st_size, about.st_ino)
    return {
        digit: {name: stamp + drafts.get(name, ()) for name, stamp in names.items()} for digit, names in found.items()
    }


def _info(conversation: Conversation, size_bytes: int) -> ConversationInfo:
    shown = conversation.shown
    last = shown[-1] if shown else None
    return ConversationInfo(
        **{name: getattr(conversation, name) for name in ("id", "title", "model", "created_at", "changed_at")},
        messages=len(shown),
        tokens=sum(turn.tokens for turn in shown),
        size_bytes=size_bytes,
        ending=last.text[-ENDING:] if last else "",
        last_request=last.request_id if last else "",
        has_draft=bool(conversation.draft),
    )
