"""A conversation as a file for people (Markdown) or for programs (JSON)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from core.errors import NodeError, UsageError
from core.requests.conversations import Conversation, KeptTurn
from tui.state.chats import option_words
from tui.state.format import moment

_ROLES = {"user": "You", "assistant": "Model"}


def markdown_of(conversation: Conversation) -> str:
    """The conversation in Markdown: title, model, settings, and every message with its time and figures."""
    words = option_words(conversation.options)
    head = [
        f"# {conversation.title}",
        f"Model: {conversation.model or 'none yet'}  \nStarted: {moment(conversation.created_at)}  \n"
        f"Settings: {', '.join(words) if words else 'always the most likely token'}",
    ]
    if conversation.options.system:
        head.append("> " + conversation.options.system.replace("\n", "\n> "))
    said = [part for turn in conversation.shown for part in _turn(turn)]
    return "\n\n".join([*head, *said]) + "\n"


def json_of(conversation: Conversation) -> str:
    """Everything shown, as JSON with times in seconds since the epoch."""
    shown = msgspec.structs.replace(conversation, turns=conversation.shown, newer=0)
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode() + "\n"


def default_path(title: str) -> Path:
    name = re.sub(r"[^\w]+", "-", title).strip("-")[:40].rstrip("-")
    return Path("~") / f"macluster-{name or 'chat'}.md"


def path_from(typed: str) -> Path:
    """The typed path. Raises UsageError if it is a folder."""
    path = Path(typed).expanduser().absolute()
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", "Name a file in it.")
    return path


def text_for(path: Path, conversation: Conversation) -> str:
    return json_of(conversation) if path.suffix.lower() == ".json" else markdown_of(conversation)


def write(path: Path, text: str, *, replace: bool = False) -> bool:
    """Write a file that only this user can read. False if it exists and `replace` isn't set. Raises NodeError."""
    try:
        how = os.O_TRUNC if replace else os.O_EXCL
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, 0o600)
            file.write(text)
    except FileExistsError:
        return False
    except OSError as error:
        raise NodeError(f"{path} can't be written: {error.strerror}.", "Name another file.") from error
    return True


def _turn(turn: KeptTurn) -> list[str]:
    figures = [f"{turn.tokens} tokens"] if turn.tokens else []
    figures += [f"{turn.tokens_per_s:.1f} tokens per second"] if turn.tokens_per_s else []
    figures += [turn.why] if turn.why else []
    lines = [f"## {_ROLES[turn.role]} · {moment(turn.at)}", turn.text.strip() or "(empty)"]
    return [*lines, f"*{' · '.join(figures)}*"] if figures else lines
