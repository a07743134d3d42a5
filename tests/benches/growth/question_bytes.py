"""Bytes that a question and its answer write to disk as a part of their conversation, over their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from core.node.disks.conversations import Conversations
from core.requests.body import without_defaults
from core.requests.conversations import ConversationId
from core.text import Clean
from tui.state.chats import Chat, kept
from tui.state.turns import Turn

SECRET: Final = bytes(range(32))
ID: Final = "1" * 32
QUESTION: Final = Clean("why? " * 20)
ANSWER: Final = Clean("because " * 100)


def measure(folder: Path, size: int) -> float:
    """Written over own bytes, from the first pause in typing to the end of the answer, after `size` messages."""
    shelf = Conversations(folder / "conversations", SECRET)
    chat = Chat(id=ID, created_at=1.0)
    turns = tuple(_turn(number, Clean("word " * 20)) for number in range(1, size + 1))
    asyncio.run(shelf.write(kept(chat, turns, 1.0)))
    asked, written, stored = _turn(size + 1, QUESTION), 0, turns
    empty, accepted, answered = (
        _turn(size + 2, text, request_id)
        for text, request_id in ((Clean(""), ""), (Clean(""), "r" * 32), (ANSWER, "r" * 32))
    )
    for at, more in enumerate(((), (asked, empty), (asked, accepted), (asked, answered)), 2):
        now = (*turns, *more)
        typed = msgspec.structs.replace(chat, draft=Clean("") if more else QUESTION)
        before = _files(folder)
        asyncio.run(shelf.write(kept(typed, now, float(at), (), stored, at - 1.0)))
        written += sum(size - before.get(inode, 0) for inode, size in _files(folder).items())
        stored = now
    found = asyncio.run(shelf.read(ConversationId(id=ID))).turns
    return written / len(msgspec.msgpack.encode(without_defaults(found[-2:])))


def _turn(number: int, text: Clean, request_id: str = "") -> Turn:
    asked = number % 2
    return Turn(
        number=number,
        parent=number - 1,
        role="user" if asked else "assistant",
        text=text,
        at=1.0,
        request_id=request_id,
    )


def _files(folder: Path) -> dict[int, int]:
    return {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*.mc?")}
