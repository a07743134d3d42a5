"""The kept conversations, a line each."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content

from core.requests import SavedSession
from tui.control.actions import bindings
from tui.control.keymap import SESSION_LIST
from tui.state.format import BAD, DIM, count, fit, moment
from tui.widgets.pointed_list import PointedList

NAME = 24
_TOKENS, _SIZE, _WHEN = 8, 10, 18


class SessionList(PointedList[SavedSession]):
    """A cursor over them."""

    HELP = """Conversations that were kept with what every Mac held of them, so that they go on at once: nothing is \
read again. They are sealed on this Mac's disk; each other Mac keeps its own part in its memory only while the model \
is loaded.

Enter goes on with one, over any split of the same model; it takes the place of what the chat shows."""

    ACTIONS = SESSION_LIST
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(SESSION_LIST)]

    def __init__(self) -> None:
        super().__init__(id="sessions")

    def show(self, sessions: tuple[SavedSession, ...]) -> None:
        """List them."""
        self.list_items(sessions)

    def key_of(self, item: SavedSession) -> str:
        """Its name."""
        return item.name

    def rows_of(self, items: tuple[SavedSession, ...], width: int) -> list[Content]:
        """A line a session."""
        return [session_content(each, width) for each in items]


def head_content(width: int) -> Content:
    """What stands over the columns."""
    return Content.styled(_row("  name", "model", "tokens", "size", "kept", width), DIM)


def session_content(session: SavedSession, width: int) -> Content:
    """A line of `width` cells; one that cannot be read says why."""
    if session.problem is not None:
        return Content.assemble(
            ("✗ ", BAD), fit(session.name, NAME), " ", (fit(session.problem.what, width - NAME - 3), BAD)
        )
    kept = moment(session.created_at)
    size = f"{session.size_bytes / 1e6:,.1f} MB"
    return Content(_row(f"● {session.name}", session.model, count(session.tokens), size, kept, width))


def _row(name: str, model: str, tokens: str, size: str, when: str, width: int) -> str:
    room = width - NAME - 2 - _TOKENS - _SIZE - _WHEN - 1
    figures = fit(tokens, _TOKENS, right=True) + fit(size, _SIZE, right=True) + fit(when, _WHEN, right=True)
    return f"{fit(name, NAME + 2)} {fit(model, room)}{figures}"
