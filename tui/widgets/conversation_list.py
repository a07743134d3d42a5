"""The list of saved conversations and sessions, and the preview of the selected one."""

from __future__ import annotations

from typing import Final

from textual.content import Content

from tui.control.keymap import CONVERSATION_LIST
from tui.state.format import BAD, DIM, GOOD, age, count, fit, plural
from tui.state.saved_chats import PreviewMessage, SavedChat
from tui.widgets.item_list import ItemList

PREVIEW_MESSAGES: Final = 20
PREVIEW_CHARACTERS: Final = 4000
_BEFORE_HIT: Final = 200
_FOUND: Final = "reverse"
_WHO: Final = {"user": ("you", "bold $primary"), "assistant": ("model", "bold $accent")}


class ConversationList(ItemList[SavedChat]):
    """One line per conversation or session, newest first."""

    HELP = """Conversations and sessions saved on this Mac, each in an encrypted file. ● is open, ✗ can't be read.

Conversations are saved automatically, with all their versions; v in the chat turns saving off. ◆ is a session: a chat \
that was saved under a name together with its cache, so it resumes at once on any split of the same model."""

    ACTIONS = CONVERSATION_LIST
    KEY = "key"

    def __init__(self) -> None:
        super().__init__(id="conversations")
        self._open = ""
        self._now = 0.0

    def show(self, rows: tuple[SavedChat, ...], open_id: str, now: float) -> None:
        self._open = self._first = open_id
        self._now = now
        self.show_items(rows)

    def rows_of(self, items: tuple[SavedChat, ...], width: int) -> list[Content]:
        return [row_content(row, self._open, self._now, width) for row in items]


def head_content(width: int) -> Content:
    return Content.styled("  " + _cells("conversation", "model", "msgs", "tokens", "last", width), DIM)


def row_content(row: SavedChat, open_id: str, now: float, width: int) -> Content:
    when = age(max(0.0, now - row.at))
    if row.problem is not None:
        words = f"{row.title}: {row.problem.what}" if row.is_session else row.problem.what
        return Content.assemble(("✗ ", BAD), (fit(words, width - 2), DIM))
    messages = "" if row.is_session else str(row.messages) if row.messages else "draft"
    mark = "◆ " if row.is_session else "● " if row.id == open_id else "  "
    return Content.assemble((mark, GOOD), _cells(row.label, row.model, messages, count(row.tokens), when, width))


def _cells(title: str, model: str, messages: str, tokens: str, when: str, width: int) -> str:
    room = width - 2 - 6 - 7 - 9
    last = max(0, min(24, room // 3)) if room >= 40 else 0
    model = "  " + fit(model, last - 2) if last else ""
    figures = fit(messages, 6, right=True) + fit(tokens, 7, right=True) + fit(when, 9, right=True)
    return fit(title, room - last) + model + figures


def preview_content(row: SavedChat | None, said: tuple[PreviewMessage, ...], wanted: str) -> Content:
    """The selected conversation from the first match of `wanted`, else its end; or why it can't be read."""
    if row is None:
        return Content("")
    if row.problem is not None:
        return Content.assemble((row.problem.what, BAD), f"\n{row.problem.fix}\n\nx deletes it.")
    if not said:
        return Content(row.ending.strip())
    found = next((at for at, one in enumerate(said) if wanted and wanted.casefold() in one.text.casefold()), None)
    first = max(0, len(said) - PREVIEW_MESSAGES) if found is None else found
    lines = [Content.styled(f"… {plural(first, 'earlier message')}", DIM)] if first else []
    return Content("\n\n").join([*lines, *(_message(one, wanted) for one in said[first : first + PREVIEW_MESSAGES])])


def _message(one: PreviewMessage, wanted: str) -> Content:
    who, style = _WHO.get(one.role, (one.role, DIM))
    head = Content.assemble((who, style), ("" if one.is_shown else " · in another version", DIM))
    text = one.text.strip()
    at = text.casefold().find(wanted.casefold()) if wanted else -1
    start = max(0, at - _BEFORE_HIT) if len(text) > PREVIEW_CHARACTERS else 0
    cut = ("… " if start else "") + text[start : start + PREVIEW_CHARACTERS]
    return Content("\n").join([head, _marked(cut, wanted)])


def _marked(text: str, wanted: str) -> Content:
    content, low, word = Content(text), text.casefold(), wanted.casefold()
    at = low.find(word) if word and len(low) == len(text) else -1
    while at >= 0:
        content = content.stylize(_FOUND, at, at + len(word))
        at = low.find(word, at + len(word))
    return content


def facts_words(row: SavedChat) -> str:
    if row.problem is not None:
        return ""
    size = f"{-(-row.size_bytes // 1000):,} kB" if row.size_bytes < 1_000_000 else f"{row.size_bytes / 1e6:,.1f} MB"
    kind = "session" if row.is_session else plural(row.messages, "message")
    return " · ".join([kind, f"{row.tokens} tok", *(["draft"] if row.has_draft else []), size])
