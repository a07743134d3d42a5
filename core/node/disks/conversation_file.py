"""The file of one conversation: its changes in order, so that a question adds only itself.

File: "MCV3" | salt 32 | records. A record is u32 length | nonce 12, random | ChaCha20-Poly1305 ciphertext of `keep`,
`turns` and the other fields of a `Conversation` that differ from before, in msgpack. The mark and the record's number
are authenticated, so none can be moved; a crash may cut off the last one. Text that is typed and not sent is in a file
of its own, sealed. An older macluster wrote one sealed file, which the first change replaces.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from msgspec.structs import replace

from core.errors import SessionError, UsageError
from core.requests.body import without_defaults
from core.requests.conversations import Conversation
from core.settings import Home
from core.trust import sealed_files
from core.trust.file_formats import check_format, format_of
from core.trust.private_files import open_private, private_folder, to_disk
from core.trust.sealed_files import DAMAGED, HEADER_BYTES, LENGTH, SALT_BYTES, SealedContent

PURPOSE: Final = "conversation"
SUFFIX: Final = ".mcv"
DRAFT_SUFFIX: Final = ".mcd"
FORMAT: Final = Home.conversations.format
MAGIC: Final = b"MCV%d" % FORMAT
_MARK: Final = MAGIC[:3]
_DRAFT_MARK: Final = b"MCD"
_NONCE_BYTES: Final = 12
_HEAD: Final = ("id", "title", "model", "created_at", "changed_at", "options", "newer")


class _End(NamedTuple):
    """Where the next record goes, and what it changes."""

    salt: bytes
    size: int = HEADER_BYTES  # up to the end of the last whole record
    records: int = 0  # none in a file of an older macluster
    turns: int = 0
    head: Conversation | None = None  # without messages; None before the first record


class ConversationFile:
    """Reads and writes the conversation `name`; both raise SessionError."""

    def __init__(self, folder: Path, name: str, secret: bytes) -> None:
        self.path, self._name, self._secret = folder / f"{name}{SUFFIX}", name, secret
        self._older = SealedContent(self.path, secret, PURPOSE, _MARK, FORMAT, SessionError)
        draft_path, purpose = folder / f"{name}{DRAFT_SUFFIX}", f"draft of {name}"
        self._draft = SealedContent(draft_path, secret, purpose, _DRAFT_MARK, FORMAT, SessionError)
        self._end = _End(b"", -1)

    def read(self) -> Conversation:
        """Raises for a damaged or newer file, another Mac's, or another conversation's under this name."""
        with open_private(self.path, SessionError) as file:
            data = file.read()
        try:
            if data.startswith(_MARK):
                said, end = self._of_records(data)
            else:
                said, end = msgspec.msgpack.decode(self._older.read(), type=Conversation), _End(b"", len(data))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SessionError(f"The content of {self.path.name} does not decode.", DAMAGED) from error
        if said.id != self._name:
            raise SessionError(f"{self.path.name} holds another conversation than its name says.", DAMAGED)
        with suppress(SessionError):  # missing or damaged: the messages are there without it
            said = replace(said, draft=self._draft.read().decode())
        self._end = end._replace(turns=len(said.turns), head=replace(said, turns=()))
        return said

    def write(self, said: Conversation) -> None:
        """Write a change, or all of it if no message stays. Raises UsageError if another conversation is changed."""
        if not said.keep:
            self._renew(said)
            return
        if self._end.size != self.path.stat().st_size:  # not read yet, or the last write failed
            self.read()
        end = self._end
        if end.head is None or end.head.changed_at != said.since or said.keep > end.turns:
            raise UsageError("The conversation was changed elsewhere.", "Open it again.")
        if end.records:
            self._append(said, end)
        else:
            self._renew(replace(said, keep=0, turns=(*self.read().turns[: said.keep], *said.turns)))

    def forget(self) -> None:
        self._draft.forget()
        self._older.forget()

    def _renew(self, said: Conversation) -> None:
        """Replace the file, and destroy the old one's key."""
        private_folder(self.path.parent, SessionError)
        self._older.check_replaceable()
        start = _End(secrets.token_bytes(SALT_BYTES))
        record = self._sealed(said, start)
        with sealed_files.renewing(self.path, SessionError) as file:
            file.write(MAGIC + start.salt + record)
        self._written(said, start, len(record))

    def _append(self, said: Conversation, end: _End) -> None:
        record = self._sealed(said, end)
        try:
            with open(os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as file:
                file.truncate(end.size)  # a crash may have left a part of a record
                file.seek(end.size)
                file.write(record)
                file.flush()
                to_disk(file.fileno())
        except OSError as error:
            what = f"{self.path} cannot be written: {error.strerror or error}."
            raise SessionError(what, "Make room on the disk and try again.") from error
        self._written(said, end, len(record))

    def _sealed(self, said: Conversation, end: _End) -> bytes:
        was, fields = end.head, {name: getattr(said, name) for name in _HEAD}
        head = {name: value for name, value in fields.items() if was is None or value != getattr(was, name)}
        content = msgspec.msgpack.encode(head | {"keep": said.keep, "turns": without_defaults(said.turns)})
        key, nonce = sealed_files.key_of(self._secret, end.salt, PURPOSE), secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + key.encrypt(nonce, content, MAGIC + LENGTH.pack(end.records))
        return LENGTH.pack(len(sealed)) + sealed

    def _written(self, said: Conversation, end: _End, more: int) -> None:
        turns = said.keep + len(said.turns)
        self._end = _End(end.salt, end.size + more, end.records + 1, turns, replace(said, turns=()))
        if said.draft and (end.head is None or said.draft != end.head.draft):
            self._draft.write(said.draft.encode())
        elif not said.draft:
            self._draft.forget()

    def _of_records(self, data: bytes) -> tuple[Conversation, _End]:
        check_format(self.path.name, format_of(data), FORMAT, SessionError)
        end, turns, head = _End(data[len(MAGIC) : HEADER_BYTES]), list[Any](), dict[str, Any]()
        key = sealed_files.key_of(self._secret, end.salt, PURPOSE)
        try:
            for sealed in sealed_files.whole_records(data):
                nonce, content = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
                head |= msgspec.msgpack.decode(key.decrypt(nonce, content, MAGIC + LENGTH.pack(end.records)))
                turns[head["keep"] :] = head["turns"]
                end = end._replace(size=end.size + LENGTH.size + len(sealed), records=end.records + 1)
        except (InvalidTag, ValueError):
            head = {}
        if not head:
            what = f"{self.path.name} was changed or cut, or another Mac sealed it (record {end.records})."
            raise SessionError(what, DAMAGED)
        return msgspec.convert(head | {"turns": turns, "keep": 0}, Conversation), end
