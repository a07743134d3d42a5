"""The list of kept conversations, and what the screen says about the one under the cursor."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content

from core.requests.conversations import ConversationInfo
from tui.control.actions import bindings
from tui.control.keymap import CONVERSATION_LIST
from tui.state.format import BAD, DIM, GOOD, age, count, fit, plural
from tui.widgets.pointed_list import PointedList

PREVIEW_LINES = 40


class ConversationList(PointedList[ConversationInfo]):
    """A line a conversation, the newest first."""

    HELP = """The conversations that are kept on this Mac, each in a sealed file. ● is on screen, ✗ cannot be read.

What is said is saved by itself. A private conversation (v in the chat) is not."""

    ACTIONS = CONVERSATION_LIST
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(CONVERSATION_LIST)]

    def __init__(self) -> None:
        super().__init__(id="conversations")
        self._open = ""
        self._now = 0.0

    def show(self, infos: tuple[ConversationInfo, ...], open_id: str, now: float) -> None:
        """List `infos`; the cursor begins on the one that is open."""
        self._open = self._first = open_id
        self._now = now
        self.list_items(infos)

    def key_of(self, item: ConversationInfo) -> str:
        """Its id."""
        return item.id

    def rows_of(self, items: tuple[ConversationInfo, ...], width: int) -> list[Content]:
        """A row a conversation."""
        return [row_content(info, self._open, self._now, width) for info in items]


def head_content(width: int) -> Content:
    """The head line above the rows."""
    return Content.styled("  " + _cells("conversation", "model", "msgs", "tokens", "last", width), DIM)


def row_content(info: ConversationInfo, open_id: str, now: float, width: int) -> Content:
    """A row of exactly `width` cells."""
    when = age(max(0.0, now - info.changed_at))
    if info.problem is not None:
        return Content.assemble(("✗ ", BAD), (fit(info.problem.what, width - 2), DIM))
    cells = _cells(info.title, info.model, str(info.messages), count(info.tokens), when, width)
    return Content.assemble(("● " if info.id == open_id else "  ", GOOD), cells)


def _cells(title: str, model: str, messages: str, tokens: str, when: str, width: int) -> str:
    room = width - 2 - 5 - 7 - 9
    last = max(0, min(24, room // 3)) if room >= 40 else 0
    model = "  " + fit(model, last - 2) if last else ""
    return (
        fit(title, room - last)
        + model
        + "".join(fit(text, cells, right=True) for text, cells in ((messages, 5), (tokens, 7), (when, 9)))
    )


def preview_content(info: ConversationInfo | None) -> Content:
    """How the conversation under the cursor ends, or why it cannot be read."""
    if info is None:
        return Content("")
    if info.problem is not None:
        return Content.assemble((info.problem.what, BAD), f"\n{info.problem.fix}\n\nx deletes it.")
    return Content("\n".join(info.ending.strip().splitlines()[-PREVIEW_LINES:]))


def facts_words(info: ConversationInfo) -> str:
    """How much it is: "2 messages · 35 tok · 3 kB"."""
    size = f"{-(-info.size_bytes // 1000)} kB"
    return " · ".join([plural(info.messages, "message"), f"{info.tokens} tok", size]) if info.problem is None else ""


def arranged(infos: tuple[ConversationInfo, ...], text: str) -> tuple[ConversationInfo, ...]:
    """Those whose title, model or ending holds `text`."""
    wanted = text.casefold()
    return tuple(i for i in infos if any(wanted in part.casefold() for part in (i.title, i.model, i.ending)))
