"""A saved conversation becomes the messages of a screen."""

from __future__ import annotations

from pathlib import Path

from core.requests.conversations import Conversation, KeptTurn
from tests.benches.growth.curve import cpu_ms
from tui.state.chats import reopened


def measure(_: Path, size: int) -> float:
    """CPU of showing a conversation of `size` messages."""
    turns = tuple(KeptTurn(role="assistant" if n % 2 else "user", text="word " * 20, at=1.0) for n in range(size))
    kept = Conversation(id="1" * 32, title="t", created_at=1.0, changed_at=1.0, turns=turns)
    return cpu_ms(lambda: reopened(kept, 1))
