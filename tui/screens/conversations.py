"""Saved conversations and sessions: open, search, rename, delete, export."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Final

from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from core.errors import MaclusterError
from core.requests.conversations import ConversationId, SessionName
from tui.control.keymap import CONVERSATIONS
from tui.control.session_work import SessionWork
from tui.screens.base import NodeScreen, Sources, titled
from tui.screens.dialogs import AskScreen
from tui.state.format import DIM, WARN, age, plural
from tui.state.saved_chats import PreviewMessage, SavedChat, preview_messages, saved_chats, session_messages
from tui.state.state import UiState
from tui.widgets.conversation_list import ConversationList, facts_words, head_content, preview_content
from tui.widgets.text_view import TextView, title_line

EMPTY: Final = """There are no saved conversations on this Mac yet.

Your chats are saved here automatically, encrypted with a key of this Mac.
Esc goes back to the chat; n starts a new one."""
NO_MATCH: Final = "Nothing found. Esc clears the search."
TYPING_S: Final = 0.15  # delays: a search after the last letter, a preview after the last row


class ConversationsScreen(NodeScreen):
    """A list and a preview, next to each other or one above the other."""

    TITLE = "Conversations"
    AUTO_FOCUS = "ConversationList"
    ACTIONS = CONVERSATIONS

    HELP = """Conversations and sessions saved on this Mac."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._conversations, self._chat = sources.conversations, sources.chat
        self._sessions = SessionWork(sources, sources.chat)
        self._rows: tuple[SavedChat, ...] | None = None
        self._wanted = ""
        self._said: tuple[str, tuple[PreviewMessage, ...]] = ("", ())
        self._why_none = "Loading…"
        self._filter = Input(id="filter", compact=True, placeholder="text in any message, title or model")
        self._filter_line = Horizontal(Static("/ "), self._filter, id="filter-line")
        self._head = TextView(id="head")
        self._empty = TextView(id="none")
        self._box = titled(Vertical(id="list-box"), "Conversations")
        self.list = ConversationList()
        self._about = TextView()
        self._preview = VerticalScroll(self._about, id="preview", classes="pane")
        self._under_way = TextView(id="under-way")

    def parts(self) -> ComposeResult:
        with Container(id="parts"):
            with self._box:
                yield from (self._filter_line, self._head, self.list, self._empty)
            yield self._preview
        yield self._under_way

    def on_mount(self) -> None:
        self._filter_line.display = self._under_way.display = False
        self._look()

    def show(self, state: UiState) -> None:
        before, self._state = self._state, state
        if (before.chat.id, before.attached) != (state.chat.id, state.attached):
            self._look()
        self._draw_work()

    def why_not(self, run: str) -> str:
        return self._sessions.why_not("save", self._state) if run == "save" else ""

    def _look(self) -> None:
        find: Any = self._fetch
        self.run_worker(find, group="conversations", exclusive=True, exit_on_error=False)

    async def _fetch(self) -> None:
        wanted = self._filter.value.strip()
        try:
            if wanted:
                await asyncio.sleep(TYPING_S)
            infos = await self._conversations.all(wanted)
            sessions = await self._sessions.all(wanted)
            self._rows, self._wanted = saved_chats(infos, sessions, wanted), wanted
        except MaclusterError as error:
            problem = error.problem
            self._why_none = f"{problem.what} {problem.fix}".rstrip()
        self.redraw()
        self._read()

    def _draw(self, width: int) -> None:
        rows = self._rows
        shown = rows or ()
        self._title.draw(title_content(None if self._wanted else rows, width))
        self._head.draw(head_content(self.list.scrollable_content_region.width))
        was_hidden = not self.list.display
        self.list.display = self._head.display = bool(shown)
        self._empty.display = not shown
        self._empty.draw(Content(self._why_none if rows is None else NO_MATCH if self._wanted else EMPTY))
        self.list.show(shown, self._state.chat.id, time.time())
        found = " found" if self._wanted else ""
        self._box.border_subtitle = Content(plural(len(shown), "conversation") + found if shown else "")
        self._draw_preview()
        if shown and self.focused is not self._filter and (was_hidden or self.focused is None):
            self.list.focus()

    def _read(self) -> None:
        read: Any = self._fetch_preview
        self.run_worker(read, group="preview", exclusive=True, exit_on_error=False)

    async def _fetch_preview(self) -> None:
        pointed, wanted = self._pointed, self._wanted
        if pointed is None or pointed.problem is not None:
            return
        await asyncio.sleep(TYPING_S)
        said: tuple[PreviewMessage, ...] = ()
        try:
            if pointed.is_session:
                said = session_messages(await self._client.session(SessionName(name=pointed.id)))
            else:
                said = preview_messages(await self._conversations.read(ConversationId(id=pointed.id)), wanted)
        except MaclusterError:  # it was deleted meanwhile, or the list shows the problem
            return
        self._said = (pointed.key, said)
        self._draw_preview()

    def _draw_preview(self) -> None:
        pointed = self._pointed
        self._preview.border_title = Content(pointed.label if pointed else "")
        self._preview.border_subtitle = Content(facts_words(pointed) if pointed else "")
        said = self._said[1] if pointed is not None and self._said[0] == pointed.key else ()
        self._about.draw(preview_content(pointed, said, self._wanted))
        if self._wanted:
            self._preview.scroll_home(animate=False)
        else:
            self._preview.scroll_end(animate=False)

    def _draw_work(self) -> None:
        work = self._sessions
        self._under_way.display = bool(work.words)
        way_out = "stopping · Esc leaves" if work.is_stopping else "Esc stops it"
        if work.words:
            reported = f" · {age(work.waited_s)} · {way_out}"
            self._under_way.draw(Content.assemble((f" ◌ {work.words}", WARN), (reported, DIM)))

    @property
    def _pointed(self) -> SavedChat | None:
        return self.list.pointed if self.list.display else None

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._draw_preview()
        self._read()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        pointed = self._readable()
        if pointed is None:
            return
        if not pointed.is_session:
            self._do(self._open(ConversationId(id=pointed.id)))
        elif why := self._sessions.why_not("load", self._state):
            self.app.notify(why)
        else:
            self._do(self._load(pointed.id))

    async def _open(self, wanted: ConversationId) -> None:
        if await self._chat.open(wanted):
            self.dismiss()

    async def _load(self, name: str) -> None:
        if await self._sessions.load(name):
            self.dismiss()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._look()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.list.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self._filter.has_focus and action in ("filter", "new", "save", "delete", "rename", "export"))

    def action_filter(self) -> None:
        self._filter_line.display = True
        self._filter.focus()

    def action_new(self) -> None:
        self._do(self._new())

    async def _new(self) -> None:
        if await self._chat.begin():
            self.dismiss()

    def action_save(self) -> None:
        words = (
            "Name (an existing session of that name is replaced). "
            "Saves the chat and its cache, so it resumes instantly."
        )
        screen = AskScreen("Save this chat as a session", words)
        self.ask_line(screen, lambda name: self._do(self._sessions.save(name)))

    def action_rename(self) -> None:
        pointed = self._readable()
        if pointed is not None and pointed.is_session:
            self.app.notify("A session can't be renamed.")
        elif pointed is not None:
            rename, chat_id = self._conversations.rename, pointed.id
            self.ask_line(
                AskScreen("Rename the conversation", "Title:", pointed.title),
                lambda title: self._do(rename(ConversationId(id=chat_id), title[:200])),
            )

    def action_delete(self) -> None:
        pointed = self._pointed
        if pointed is None:
            return
        here = " The chat on screen is cleared." if pointed.id == self._state.chat.id else ""
        what = "This damaged file" if pointed.problem is not None and not pointed.is_session else pointed.title
        kind = "session" if pointed.is_session else "conversation"
        effect = f"{what} is deleted for good.{here}"
        self.ask(f"Delete the {kind}?", effect, ("Cancel", "Delete"), lambda _: self._do(self._delete(pointed)))

    async def _delete(self, chat: SavedChat) -> None:
        if chat.is_session:
            await self._sessions.delete(chat.id)
        else:
            await self._chat.delete(ConversationId(id=chat.id))

    def action_export(self) -> None:
        pointed = self._readable()
        if pointed is not None and pointed.is_session:
            self.app.notify("Open the session first (Enter), then export the chat.")
        elif pointed is not None:
            self._do(self._conversations.export(ConversationId(id=pointed.id)))

    async def action_back(self) -> None:
        if self._sessions.words and not self._sessions.is_stopping:
            self.do(self._sessions.stop())
        elif self._filter_line.display and not self._sessions.words:
            self._filter.value = ""
            self._filter_line.display = False
            self.list.focus()
        else:
            self.dismiss()

    def _readable(self) -> SavedChat | None:
        pointed = self._pointed
        if pointed is None:
            self.app.notify("Nothing to show.")
        elif pointed.problem is not None:
            self.app.notify(pointed.problem.what)
            return None
        return pointed

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        async def done() -> None:
            await self.answer_of(work)
            if self.is_attached:
                self._look()

        self.do(done())
        self.call_after_refresh(self._draw_work)


def title_content(rows: tuple[SavedChat, ...] | None, width: int) -> Content:
    counted = "" if rows is None else f"{plural(len(rows), 'conversation')} · "
    return title_line("Conversations", f"{counted}encrypted on this Mac", width, style=DIM)
