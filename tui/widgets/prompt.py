"""The prompt."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from textual.content import Content
from textual.events import Key
from textual.widgets import TextArea

from tui.control.actions import KeyOwner
from tui.control.keymap import PROMPT
from tui.control.messages import Sent
from tui.state.chats import Chat
from tui.state.format import count
from tui.state.plan_words import context_length
from tui.state.recovery import held
from tui.state.state import UiState

_ASKS = {"ready": "Ask anything", "loading": "Loading the model…"}
_PREPARING = "Preparing the demo…"
_NO_MODEL = "Ctrl+O chooses a model"

_NEARLY = 0.9
_CHARACTERS = 4  # rough length of a token; only the node knows it


class Prompt(KeyOwner, TextArea):
    """A text area that sends with Enter and remembers what was sent."""

    HELP = """Type here; Enter sends to the model. The whole conversation is sent each time.

Esc stops the answer. Pressed again it leaves the prompt, so that single letters work as keys."""

    ACTIONS = PROMPT

    def __init__(self) -> None:
        super().__init__(
            id="prompt",
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder="Ask anything",
        )
        self._history: list[str] = []
        self._at = 0
        self._chat = Chat()
        self._draft = ""
        self._hint = ""

    def show(self, state: UiState) -> None:
        before, self._chat = self._chat, state.chat
        if before.id != state.chat.id:
            if before.id and before.is_unkept:
                self._history.clear()
            self._remember(turn.text for turn in state.turns if turn.role == "user")
        words = context_words(state, len(self.text) // _CHARACTERS)
        is_in_title = self.screen.has_class("zoom-chat") and not words.startswith("▲")  # by the title
        hint = hint_words(state, "" if is_in_title else words, self.size.width - 2)
        if self.app.has_class("plain"):
            hint = hint.replace("↑", "Up")
        if hint != self._hint:
            self._hint = hint
            self.border_subtitle = Content(hint)
        asks = _ASKS.get(state.snapshot.chat_status, _PREPARING if state.preparing else _NO_MODEL)
        if self.placeholder != asks:
            self.placeholder = asks

    def on_key(self, event: Key) -> None:
        """Leave Enter to its binding: a priority binding would overtake letters that are still queued."""
        if event.key == "enter":
            event.prevent_default()
        elif event.key == "colon" and not self.text:
            event.prevent_default()
            self.app.action_command_palette()

    def action_send(self) -> None:
        text = self.text.strip()
        if text:
            self.post_message(Sent(text))

    def taken(self) -> None:
        self._remember([self.text.strip()])
        self._draft = ""
        self.clear()

    def write(self, text: str) -> None:
        self.insert(text.replace("\r\n", "\n").replace("\r", "\n"))

    def put(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def lend(self, text: str) -> None:
        self._draft = self.text
        self.put(text)
        self.focus()

    def give_back(self) -> None:
        self.put(self._draft)
        self._draft = ""

    def action_new_line(self) -> None:
        self.insert("\n")

    def action_earlier(self) -> None:
        """Recall the previous message if the prompt is empty or shows history; else move the cursor up."""
        if not self._browses() or self._at == 0:
            self.action_cursor_up()
            return
        self._recall(self._at - 1)

    def action_later(self) -> None:
        if not self._browses() or self._at >= len(self._history):
            self.action_cursor_down()
            return
        self._recall(self._at + 1)

    def _remember(self, questions: Iterable[str]) -> None:
        fresh = list(dict.fromkeys(q for q in questions if q))
        self._history = [q for q in self._history if q not in fresh] + fresh
        self._at = len(self._history)

    def _browses(self) -> bool:
        return not self.text or (self._at < len(self._history) and self.text == self._history[self._at])

    def _recall(self, index: int) -> None:
        self._at = index
        self.put(self._history[index] if index < len(self._history) else "")


def hint_words(state: UiState, context: str = "", width: int = 80) -> str:
    """The effects of Enter and Esc, and how full the `context` is; in `width` cells the most important."""
    if state.editing:
        return "Enter: ask the edited question · Esc: cancel"
    stops = state.answer is not None and held(state.snapshot) is None
    last = "Esc: stop" if stops else "↑: history"
    choices = (("Enter: send", "Ctrl+J: new line", last), ("Enter: send", last), ())
    hints = (" · ".join(filter(None, (*keys, context))) for keys in choices)
    return next((hint for hint in hints if cell_len(hint) <= width), context)


def context_words(state: UiState, about: int = 0) -> str:
    """How full the context is: "context 3.1k/32k", with a warning near the end or if `about` more won't fit."""
    answers = [t for t in state.turns if t.role == "assistant" and t.prompt_tokens]
    used = answers[-1].prompt_tokens + answers[-1].tokens if answers else 0
    if not (context := state.snapshot.chat_context):
        return ""
    if about and used + about > context:
        return f"▲ too long: about {count(used + about)} tokens, context {context_length(context)}"
    words = f"context {count(used)}/{context_length(context)}"
    return f"▲ {words}, nearly full: Ctrl+N starts a new chat" if used > _NEARLY * context else words
