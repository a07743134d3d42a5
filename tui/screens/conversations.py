"""The kept conversations: open one, begin a new one, rename, delete, export."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from core.requests.conversations import ConversationId, ConversationInfo, ConversationTitle
from tui.control.actions import bindings
from tui.control.bridge import FAILURES, problem_of
from tui.control.keymap import CONVERSATIONS
from tui.control.messages import Noted
from tui.screens.asking import AskScreen, ChoiceScreen
from tui.screens.base import SizedScreen
from tui.state.format import DIM, between, plural
from tui.state.state import UiState
from tui.widgets.conversation_list import ConversationList, arranged, facts_words, head_content, preview_content
from tui.widgets.key_bar import KeyBar
from tui.widgets.text_view import TextView
from tui.widgets.too_small import TooSmall

if TYPE_CHECKING:
    from tui.control.chat_controller import ChatController
    from tui.control.conversation_archive import ConversationArchive

EMPTY = """No conversation is kept on this Mac yet.

What you ask and what is answered is saved here by itself, sealed with a key of this Mac.
Esc leads back to the chat; n begins a new one."""
NO_MATCH = "No conversation holds that text. Esc clears the filter."


class ConversationsScreen(SizedScreen):
    """A list and how the one under the cursor ends, side by side or one above the other."""

    CSS_PATH = "conversations.tcss"
    AUTO_FOCUS = "ConversationList"
    ACTIONS = CONVERSATIONS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(CONVERSATIONS)]

    HELP = """The conversations that are kept on this Mac."""

    def __init__(self, conversations: ConversationArchive, chat: ChatController, state: UiState) -> None:
        super().__init__()
        self._conversations, self._chat = conversations, chat
        self._state = state
        self._infos: tuple[ConversationInfo, ...] | None = None
        self._why_none = "Asking the node of this Mac."
        self._title = TextView(id="title")
        self._filter = Input(id="filter", compact=True, placeholder="part of a title, a model or the last words")
        self._filter_line = Horizontal(Static("/ "), self._filter, id="filter-line")
        self._head = TextView(id="head")
        self._empty = TextView(id="none")
        self._box = Vertical(id="list-box", classes="pane")
        self.list = ConversationList()
        self._about = TextView()
        self._preview = VerticalScroll(self._about, id="preview", classes="pane")

    def compose(self) -> ComposeResult:
        """Title, the two halves, keys."""
        yield self._title
        with Container(id="parts"):
            with self._box:
                yield from (self._filter_line, self._head, self.list, self._empty)
            yield self._preview
        yield KeyBar()
        yield TooSmall()

    def on_mount(self) -> None:
        """Ask the node; the filter is hidden until it is asked for."""
        self._box.border_title = Content("Conversations")
        self._filter_line.display = False
        self._look()

    def on_descendant_focus(self) -> None:
        """The frame of the list stands for the list and its filter."""
        self._box.set_class(self.focused in (self.list, self._filter), "lit")

    def laid_out(self) -> None:
        """Draw for the new sizes."""
        self._arrange()

    def show(self, state: UiState) -> None:
        """Another conversation may be on screen, or the node is back."""
        before, self._state = self._state, state
        if (before.chat.id, before.attached) != (state.chat.id, state.attached):
            self._look()

    def _look(self) -> None:
        find: Any = self._fetch
        self.run_worker(find, group="conversations", exclusive=True, exit_on_error=False)

    async def _fetch(self) -> None:
        try:
            self._infos = tuple(await self._conversations.all())
        except FAILURES as error:
            problem = problem_of(error)
            self._why_none = f"{problem.what} {problem.fix}".rstrip()
        self._arrange()

    def _arrange(self) -> None:
        infos, width = self._infos, self._title.size.width
        if width <= 0:
            return
        shown = arranged(infos or (), self._filter.value)
        self._title.draw(title_content(infos, width))
        self._head.draw(head_content(self.list.scrollable_content_region.width))
        self.list.display = self._head.display = bool(shown)
        self._empty.display = not shown
        self._empty.draw(Content(self._why_none if infos is None else NO_MATCH if infos else EMPTY))
        self.list.show(shown, self._state.chat.id, time.time())
        counted = f"{len(shown)} of {len(infos or ())}" if self._filter.value else plural(len(shown), "conversation")
        self._box.border_subtitle = Content(counted if infos else "")
        self._draw_preview()
        if self.list.display and self.focused is None:
            self.list.focus()

    def _draw_preview(self) -> None:
        pointed = self.list.pointed if self.list.display else None
        self._preview.border_title = Content(pointed.title or "Damaged" if pointed else "")
        self._preview.border_subtitle = Content(facts_words(pointed) if pointed else "")
        self._about.draw(preview_content(pointed))
        self._preview.scroll_end(animate=False)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """The preview follows the cursor."""
        self._draw_preview()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open it in the chat."""
        if pointed := self._readable():
            self._do(self._open(ConversationId(id=pointed.id)))

    async def _open(self, wanted: ConversationId) -> None:
        if await self._chat.open(wanted):
            self.dismiss()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        self._arrange()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the list, still filtered."""
        self.list.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters are text while the filter is written."""
        return not (self._filter.has_focus and action in ("filter", "new", "delete", "rename", "export"))

    def action_filter(self) -> None:
        """Show the filter and go there."""
        self._filter_line.display = True
        self._filter.focus()

    def action_new(self) -> None:
        """Begin a new conversation."""
        self._do(self._begin())

    async def _begin(self) -> None:
        if await self._chat.begin():
            self.dismiss()

    def action_rename(self) -> None:
        """Give it another title."""
        if pointed := self._readable():
            asking = AskScreen("Rename the conversation", "Its title:", pointed.title)
            self._ask(
                asking,
                lambda title: self._conversations.rename(ConversationTitle(id=pointed.id, title=str(title)[:200])),
            )

    def action_delete(self) -> None:
        """Forget it, after asking."""
        if pointed := self.list.pointed:
            here = " It is on screen, which is then empty." if pointed.id == self._state.chat.id else ""
            effect = Content(
                f"{pointed.title or 'This damaged file'} is deleted, with its key: nobody can read it again.{here}"
            )
            asking = ChoiceScreen("Delete the conversation?", effect, ("Keep it", "Delete it"))
            self._ask(asking, lambda _: self._chat.delete(ConversationId(id=pointed.id)))

    def action_export(self) -> None:
        """Write it to a file."""
        if pointed := self._readable():
            self._do(self._conversations.export(ConversationId(id=pointed.id)))

    def action_leave(self) -> None:
        """To the dashboard."""
        self.dismiss()

    def action_back(self) -> None:
        """One step back: clear the filter, leave."""
        if self._filter_line.display:
            self._filter.value = ""
            self._filter_line.display = False
            self.list.focus()
        else:
            self.dismiss()

    def _readable(self) -> ConversationInfo | None:
        pointed = self.list.pointed
        if pointed is None:
            self.post_message(Noted("There is no conversation here yet."))
        elif pointed.problem is not None:
            self.post_message(Noted(f"Not now: {pointed.problem.what}"))
            return None
        return pointed

    def _ask(self, asking: AskScreen | ChoiceScreen, command: Callable[[object], Coroutine[None, None, None]]) -> None:
        def answered(answer: object) -> None:
            if answer:
                self._do(command(answer))

        self.app.push_screen(asking, answered)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        async def done() -> None:
            await self.answer_of(work)
            self._look()

        self.do(done())


def title_content(infos: tuple[ConversationInfo, ...] | None, width: int) -> Content:
    """How many there are, in `width` cells."""
    right = (
        f"{plural(len(infos), 'conversation')} · sealed on this Mac " if infos is not None else "sealed on this Mac "
    )
    line = between(" Conversations", right, width)
    return Content(line).stylize("bold", 0, 14).stylize(DIM, max(0, len(line) - len(right)), len(line))
