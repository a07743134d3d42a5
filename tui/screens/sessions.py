"""The kept conversations: go on with one, keep the present one, delete one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList

from core.requests import SavedSession, SessionName
from tui.control.actions import bindings
from tui.control.bridge import FAILURES, problem_of
from tui.control.keymap import SESSIONS
from tui.control.messages import Failed, Noted, TakenUp
from tui.screens.asking import AskScreen, ChoiceScreen
from tui.screens.base import SizedScreen
from tui.state.format import BAD, DIM, WARN, age, fit, plural
from tui.state.state import UiState, washed
from tui.widgets.key_bar import KeyBar
from tui.widgets.session_list import SessionList, head_content
from tui.widgets.text_view import TextView
from tui.widgets.too_small import TooSmall

if TYPE_CHECKING:
    from tui.client import NodeClient

_EMPTY = """No conversation is kept on this Mac yet.

s keeps the one of the chat under a name, with what every Mac holds of it: it goes on later without being read again.
"""


class SessionsScreen(SizedScreen):
    """A title, the list, and what is under way."""

    CSS_PATH = "sessions.tcss"
    AUTO_FOCUS = "SessionList"
    ACTIONS = SESSIONS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(SESSIONS)]

    HELP = """Conversations that continue at once: what every Mac held of them is kept."""

    def __init__(self, client: NodeClient, state: UiState) -> None:
        super().__init__()
        self._client = client
        self._state = state
        self._found: tuple[SavedSession, ...] | None = None
        self._under_way, self._is_stopping = "", False
        self._since = 0.0
        self._title = TextView(id="title")
        self._head = TextView(id="head")
        self._empty = TextView(id="none")
        self._line = TextView(id="under-way")
        self.list = SessionList()
        self._box = Vertical(id="sessions-box", classes="pane")

    def compose(self) -> ComposeResult:
        """One frame, and a line below it."""
        yield self._title
        with self._box:
            yield from (self._head, self.list, self._empty)
        yield self._line
        yield KeyBar()
        yield TooSmall()

    def on_mount(self) -> None:
        """Ask the node what there is."""
        self._box.border_title = Content("Kept conversations")
        self._ask()

    def on_descendant_focus(self) -> None:
        """The frame stands for its list."""
        self._box.set_class(self.focused is self.list, "lit")

    def laid_out(self) -> None:
        """Draw for the new sizes."""
        self._draw()

    def show(self, state: UiState) -> None:
        """Time passes, or the model is another."""
        self._state = state
        self._draw()

    def why_not(self, run: str) -> str:
        """Why an action cannot be done now; "" if it can."""
        pointed, ready = self.list.pointed, self._state.snapshot.plan_status == "ready"
        if run in ("save", "delete", "load") and self._under_way:
            return f"{self._under_way} is under way"
        if run in ("save", "load") and not ready:
            return "no model is ready (Ctrl+O loads one)"
        if run == "save" and not self._state.turns:
            return "nothing was said yet"
        if run in ("delete", "load") and pointed is None:
            return "there is no conversation"
        return f"{pointed.name} cannot be read" if run == "load" and pointed and pointed.problem else ""

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Go on with it."""
        event.stop()
        if why := self.why_not("load"):
            self.post_message(Noted(f"Not now: {why}."))
        elif pointed := self.list.pointed:
            self._begin(f"Loading {pointed.name}", self._load(SessionName(name=pointed.name)))

    def action_save(self) -> None:
        """Keep the conversation of the chat."""
        words = "A name; one that has it is replaced. What every Mac holds of the conversation is kept with its words."

        def named(name: str | None) -> None:
            if name:
                self._begin(f"Keeping {name}", self._save(SessionName(name=name)))

        self.app.push_screen(AskScreen("Keep this conversation", words), named)

    def action_delete(self) -> None:
        """Delete the one under the cursor."""
        pointed = self.list.pointed
        if pointed is None:
            return
        effect = Content("It is deleted from this Mac, and so is its key: no copy of it can be read again.")
        screen = ChoiceScreen(f"Delete {pointed.name}?", effect, ("Keep it", f"Delete {pointed.name}"))
        name = SessionName(name=pointed.name)
        self.app.push_screen(
            screen, lambda number: self._begin(f"Deleting {name.name}", self._delete(name)) if number else None
        )

    def action_leave(self) -> None:
        """To where one came from."""
        self.dismiss()

    def action_back(self) -> None:
        """One step: stop what is under way; pressed again, or where nothing is, leave."""
        if self._under_way and not self._is_stopping:
            self._is_stopping = True
            self._draw()
            self.do(self._client.stop_session())
        else:
            self.dismiss()

    async def _load(self, wanted: SessionName) -> None:
        kept = await self._client.load_session(wanted)
        self.post_message(TakenUp(kept.messages))
        self.post_message(Noted(f"{kept.name} goes on: {plural(kept.tokens, 'token')} of {kept.model}."))
        self.dismiss()

    async def _save(self, wanted: SessionName) -> None:
        kept = await self._client.save_session(wanted)
        self.post_message(Noted(f"{kept.name} is kept: {plural(kept.tokens, 'token')} of {kept.model}."))

    async def _delete(self, wanted: SessionName) -> None:
        await self._client.delete_session(wanted)
        self.post_message(Noted(f"{wanted.name} is deleted."))

    def _begin(self, words: str, work: Coroutine[Any, Any, None]) -> None:
        self._under_way, self._since = words, time.monotonic()
        self._draw()
        self.run_worker(self._run(work, words), group="session", exit_on_error=False)

    async def _run(self, work: Coroutine[Any, Any, None], words: str) -> None:
        try:
            await work
        except FAILURES as error:
            self.post_message(Failed(problem_of(error)))
        except asyncio.CancelledError:
            self.post_message(Noted(f"{words} is left to the node of this Mac, which ends it by itself."))
            raise
        finally:
            self._under_way, self._is_stopping = "", False
            if self.is_attached:
                self._ask()

    def _ask(self) -> None:
        self.run_worker(self._fetch(), group="look", exclusive=True, exit_on_error=False)

    async def _fetch(self) -> None:
        found = await self.answer_of(self._client.sessions())
        if found is not None:
            self._found = tuple(washed(each) for each in found)
        self._draw()

    def _draw(self) -> None:
        width = self._title.size.width
        if width <= 0:
            return
        found = self._found
        total = "" if found is None else plural(len(found), "conversation")
        self._title.draw(Content.assemble((fit(" Sessions", width - len(total) - 1), "bold"), (total, DIM)))
        self._head.display = self.list.display = bool(found)
        self._empty.display = not found
        self._empty.draw(Content(_EMPTY if found is not None else "Asking the node of this Mac."))
        self._head.draw(head_content(self._box.scrollable_content_region.width))
        self.list.show(found or ())
        self._line.draw(self._line_content())
        if self.list.display and self.focused is None:
            self.list.focus()

    def _line_content(self) -> Content:
        if self._under_way:
            waited = age(max(0.0, time.monotonic() - self._since))
            way_out = "stopping · Esc leaves" if self._is_stopping else "Esc stops it"
            return Content.assemble((f" ◌ {self._under_way}", WARN), (f" · {waited} · {way_out}", DIM))
        pointed = self.list.pointed
        if pointed is not None and pointed.problem is not None:
            return Content.assemble((f" ✗ {pointed.problem.what} ", BAD), (pointed.problem.fix, DIM))
        return Content("")
