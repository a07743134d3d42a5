"""Conversations kept on disk: a list of them, a search, and what the first screen asks."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Final

import msgspec

from core.node.answers.token_log import unfinished
from core.node.disks.conversation_file import MAGIC, ConversationFile, _End
from core.node.disks.conversations import Conversations
from core.requests.conversations import Conversation, ConversationInfo, KeptTurn, SearchText
from core.trust.sealed_files import SALT_BYTES
from tests.benches.growth.curve import cpu_ms

SECRET: Final = bytes(range(32))
MESSAGES: Final = 6
WANTED: Final = "the canary"


def listed(folder: Path, size: int) -> float:
    kept = _home(folder, size)
    return cpu_ms(lambda: asyncio.run(kept.all()))


def searched(folder: Path, size: int) -> float:
    kept = _home(folder, size)
    return cpu_ms(lambda: asyncio.run(kept.holding(SearchText(text=WANTED))))


def first_screen(folder: Path, size: int) -> float:
    """With the reply through JSON, as a screen gets it."""
    kept = _home(folder, size)

    def asked() -> None:
        unfinished(folder / "logs", SECRET)
        msgspec.json.decode(msgspec.json.encode(asyncio.run(kept.all())), type=list[ConversationInfo])

    return cpu_ms(asked)


def _home(folder: Path, size: int) -> Conversations:
    """Conversations of six messages, as if their index were made long ago."""
    shelf = folder / "conversations"
    shelf.mkdir(mode=0o700)
    for number in range(size):
        words = f"{number} {WANTED if number % 100 == 0 else 'nothing'} " + "word " * 60
        turns = tuple(KeptTurn(role="assistant" if n % 2 else "user", text=words, at=1.0) for n in range(MESSAGES))
        name = secrets.token_hex(16)
        whole = Conversation(
            id=name, title=f"about {number}", model="m", created_at=1.0, changed_at=float(number), turns=turns
        )
        file, start = ConversationFile(shelf, name, SECRET), _End(bytes(SALT_BYTES))
        file.path.touch(mode=0o600)
        file.path.write_bytes(MAGIC + start.salt + file._sealed(whole, start))  # without a sync each
    kept = Conversations(shelf, SECRET)
    asyncio.run(kept.all())
    return kept
