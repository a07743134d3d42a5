"""Pane 5: the conversation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.reactive import Reactive
from textual.timer import Timer

from core.text import Clean
from tui.control.actions import KeyOwner
from tui.control.keymap import CHAT
from tui.control.messages import Branched, Copied, Edited
from tui.state.branches import place_words
from tui.state.chats import option_words, title_of
from tui.state.format import BAD, DIM, WARN, fit, plural
from tui.state.recovery import held
from tui.state.seat import led_words, unasked_words
from tui.state.state import UiState
from tui.state.turns import Turn
from tui.widgets.loading_text import loading_lines
from tui.widgets.markdown import code_blocks, render
from tui.widgets.markdown_chunks import Chunk
from tui.widgets.text_view import TextView

if TYPE_CHECKING:
    from tui.widgets.message_view import MessageView

MESSAGES_SHOWN = 200
_SURVIVAL = "While an answer is written, Ctrl+T unplugs a Mac and Ctrl+G plugs it back in. The answer continues."


def warm_up() -> None:
    import tui.widgets.message_view  # noqa: F401

    render(Chunk(Clean("```python\npass\n```")), 80)


class ChatLog(KeyOwner, VerticalScroll, can_focus=True):
    """The messages, oldest first. It stays at the end until the person scrolls up."""

    HELP = """The conversation. It follows the answer until you scroll up; End follows it again.

[ and ] select a message, y copies it. Y copies its last code block; press again for the previous one. e edits the \
selected question and asks again from there, Ctrl+R asks for another answer. Earlier versions are kept: 2/3 ‹ › says \
which one is shown, < and > switch. What was written stays, even if an answer breaks off."""

    ACTIONS = CHAT

    # new text is already laid out and followed when this changes; Textual would lay out everything again
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)

    def __init__(self, *, fps: int, note: str) -> None:
        super().__init__(id="chat", classes="pane")
        self._fps = fps
        self._note = note
        self._state = UiState()
        self._views: list[MessageView] = []
        self._marked: MessageView | None = None
        self._wanted = 0
        self._empty = TextView(id="empty")
        self._seen_rows = 0
        self._title = ""
        self._zoomed = False
        # message number, and how many of its blocks were copied, the last first
        self._code_copied: tuple[int, int] = (0, 0)
        self._flusher: Timer | None = None
        self._gives_way = self._gave_way = False

    def compose(self) -> ComposeResult:
        yield self._empty

    def on_mount(self) -> None:
        self._flusher = self.set_interval(1 / self._fps, self._flush, pause=True)

    def show(self, state: UiState) -> None:
        if state.turns is not self._state.turns and self._flusher is not None:
            self._flusher.resume()
        self._state = state
        self._show_title()
        self._show_empty()

    def give_way(self) -> None:
        self._gives_way = True

    def zoom(self, on: bool) -> None:
        """Show the chat alone: the line above has the title, and the heads have the figures."""
        self._zoomed = on
        with self.app.batch_update():
            for view in self._views:
                view.zoom(on)
        self._show_title()

    def _show_title(self) -> None:
        state = self._state
        title = title_of(state.chat, state.turns) if state.turns else ""
        if not self._zoomed:
            title = " · ".join(["5 Chat", *chat_words(state)])
        if title != self._title:
            self._title = title
            self.border_title = Content(title) if title else None

    def _show_empty(self) -> None:
        self._empty.display = not self._state.turns
        self._empty.draw(empty_content(self._state, self._note, self._empty.size.width))

    async def _flush(self) -> None:
        self._gave_way, self._gives_way = self._gives_way and not self._gave_way, False
        if self._gave_way:
            return
        state, now = self._state, time.time()
        await self._sync(state.turns[-MESSAGES_SHOWN:])
        turns = {t.number: t for t in state.turns[-MESSAGES_SHOWN:]}
        for view in self._views:
            turn = turns.get(view.turn.number)
            if turn is not None and not (view.finished and view.turn is turn):
                await view.advance(turn, now, state.snapshot.recovery)
        self.call_after_refresh(self._count_new_rows)
        # the state may have changed meanwhile, and nothing else would draw it
        if state.answer is None and state.turns is self._state.turns and self._flusher is not None:
            self._flusher.pause()

    async def _sync(self, turns: tuple[Turn, ...]) -> None:
        numbers = {t.number for t in turns}
        stale = [v for v in self._views if v.turn.number not in numbers]
        known = {v.turn.number for v in self._views}
        fresh = [self._view_of(t) for t in turns if t.number not in known]
        if stale:
            await self.remove_children([w for v in stale for w in v.widgets])
            self._views = [v for v in self._views if v not in stale]
            if not self._views:
                self.anchor(False)
        if fresh:
            self._views += fresh
            for view in fresh:
                view.zoom(self._zoomed)
            await self.mount(*(w for v in fresh for w in v.widgets))
            if self.is_anchored:
                self.anchor()
        if self._marked not in self._views:
            self._marked = None
        if found := next((v for v in self._views if v.turn.number == self._wanted), None):
            self._wanted = 0
            self._mark(found)

    def look_for(self, number: int) -> None:
        self._wanted = number

    def _mark(self, view: MessageView) -> None:
        if self._marked is not None:
            self._marked.mark(False)
        self._marked = view
        view.mark(True)
        self.scroll_to_widget(view.widgets[0], animate=False, top=True)

    def _view_of(self, turn: Turn) -> MessageView:
        # Markdown is a tenth of the start-up time and not needed before the first message
        from tui.widgets.message_view import AnswerView, QuestionView

        # a shown message gets no other versions
        place = place_words(self._state.turns, self._state.others, turn.number)
        return QuestionView(turn, place) if turn.role == "user" else AnswerView(turn, place)

    def on_resize(self) -> None:
        self.refresh()
        self.call_after_refresh(self._count_new_rows)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._count_new_rows()

    def _count_new_rows(self) -> None:
        if self.max_scroll_y > 0 and not self.is_anchored:
            # not earlier: an anchored scroller pushes a short conversation to the bottom
            self.anchor()
        if self.scroll_offset.y >= self.max_scroll_y:
            self._seen_rows = self.max_scroll_y
        new = self.max_scroll_y - self._seen_rows
        below = f"▼ {plural(new, 'new line')} · End" if new > 0 else ""
        if str(self.border_subtitle or "") != below:
            self.border_subtitle = Content(below) if below else None

    def action_latest(self) -> None:
        self.anchor()

    def action_message(self, step: int) -> None:
        if not self._views:
            return
        at = self._views.index(self._marked) if self._marked is not None else len(self._views)
        self._mark(self._views[max(0, min(len(self._views) - 1, at + step))])

    def action_branch(self, step: int) -> None:
        self.post_message(Branched(self._marked.turn.number if self._marked is not None else 0, step))

    def action_copy_message(self) -> None:
        turn = self._chosen()
        if turn is not None and turn.text:
            self.post_message(Copied(turn.text))
        else:
            self.app.notify("There is no answer to copy yet.")

    def action_copy_code(self) -> None:
        turn = self._chosen()
        blocks = code_blocks(turn.text) if turn is not None else []
        if turn is None or not blocks:
            self.app.notify("This message has no code block.")
            return
        number, copied = self._code_copied
        copied = copied % len(blocks) if number == turn.number else 0
        self._code_copied = (turn.number, copied + 1)
        if len(blocks) > 1:
            self.app.notify(f"Code block {len(blocks) - copied} of {len(blocks)}. Y copies the previous one.")
        self.post_message(Copied(blocks[-1 - copied]))

    def action_edit_message(self) -> None:
        turn = self._marked.turn if self._marked is not None else None
        if turn is None:
            turn = next((t for t in reversed(self._state.turns) if t.role == "user"), None)
        if turn is not None and turn.role == "user":
            self.post_message(Edited(turn.number))
        else:
            self.app.notify("Select a question with [ and ], then press e to edit it.")

    def _chosen(self) -> Turn | None:
        number = self._marked.turn.number if self._marked is not None else None
        turns = [t for t in self._state.turns if (t.number == number if number else t.role == "assistant")]
        return turns[-1] if turns else None


def chat_words(state: UiState) -> list[str]:
    now, chat = state.snapshot, state.chat
    words = [now.chat_model] if now.chat_model else []
    words += [f"{now.host.led_by} sees these words"] if now.host else []
    return [*words, *option_words(chat.options), *(["not saved"] if chat.is_unkept else [])]


def empty_content(state: UiState, note: str, width: int = 72) -> Content:
    """Text of an empty conversation: the state, and what to do next."""
    head = [Content.styled(note, DIM), Content("")] if note else []
    return Content("\n").join([*head, *_empty_lines(state, width, is_demo=bool(note))])


def _empty_lines(state: UiState, width: int, *, is_demo: bool) -> list[Content]:
    snapshot = state.snapshot
    if recovery := held(snapshot):
        return [Content.styled(recovery.text, WARN), Content("Your choices are listed below.")]
    if snapshot.host and (why := unasked_words(snapshot)):
        return [Content(led_words(snapshot.host, snapshot)), Content(f"\n{why}")]
    if snapshot.chat_status == "ready":
        macs = plural(len(snapshot.plan.stages), "Mac") if snapshot.plan else ""
        text = f"{snapshot.chat_model} is loaded on {macs}."
        if host := snapshot.host:
            text = f"{led_words(host, snapshot)}.\n\n{host.led_by} answers: it sees what you ask, and keeps none of it."
        text += "\n\nType below and press Enter. F3 shows earlier conversations."
        if state.last is not None:
            text += f"\n\nCtrl+L continues the last conversation: {fit(state.last.title, 40).rstrip()}"
        text += f"\n\n{_SURVIVAL}" if is_demo else ""
        other = "\n\nAnother program is using the model; its answer is shown there."
        return [Content(text + (other if snapshot.running else ""))]
    if snapshot.plan_status == "loading" and snapshot.plan is not None:
        return [Content(f"Loading {snapshot.plan.model}"), Content(""), *loading_lines(state, width)]
    if snapshot.plan_status == "broken":
        stopped = "The model stopped – see pane 2 for the reason."
        return [Content.styled(stopped, BAD), Content("\nCtrl+O loads it again, or another one.")]
    if not state.attached:
        stopped = "macluster's service isn't running on this Mac; the reason is at the top."
        return [Content(stopped if state.offline else "Connecting to macluster's service…")]
    if state.preparing:
        return [Content(state.preparing), Content(""), Content(_SURVIVAL)]
    text = "No model is loaded.\n\nCtrl+O shows the models on this Mac and how they fit.\nF1 explains what you see."
    return [Content(text)]
