"""The recovery pane: what happened to a Mac of the plan, and the choices."""

from __future__ import annotations

from typing import Final

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from core.events import RecoveryChoice
from tui.control.keymap import RECOVERY
from tui.control.messages import RecoveryChosen
from tui.state.recovery import Choice, choice_content, choices, facts, held, title
from tui.state.state import UiState
from tui.widgets.cursor_list import CursorList
from tui.widgets.text_view import TextView

_WORDS: Final[dict[RecoveryChoice, str]] = {"replan": "Continue", "wait": "Wait", "save": "Save", "stop": "Stop"}


class RecoveryPane(VerticalScroll, can_focus=False):
    """The event and the choices; hidden while all is well. With little room, only the choices are visible."""

    def __init__(self) -> None:
        super().__init__(id="recovery")
        self._state = UiState()
        self._facts = TextView()
        self._title = ""
        self.choices = RecoveryChoices()
        self.display = False

    def compose(self) -> ComposeResult:
        yield self._facts
        yield self.choices

    def show(self, state: UiState) -> None:
        self._state = state
        recovery = held(state.snapshot)
        self.display = recovery is not None
        width = self.scrollable_content_region.width
        if recovery is None or width <= 0:
            return
        if (name := title(state.snapshot, recovery)) != self._title:
            self._title = name
            self.border_title = Content(name)
        if not (text := facts(state, recovery, width)).is_same(self._facts.shown):
            self._facts.draw(text)
            self.scroll_end(animate=False)
        self.choices.show(choices(state.snapshot, recovery), width)

    def on_resize(self) -> None:
        self.show(self._state)


class RecoveryChoices(CursorList):
    """The numbered choices; the first is the default, and selected at the start."""

    HELP = """A Mac that holds layers is offline, so no token can be computed. Nothing that was written is lost. The \
first choice happens by itself. A digit, or the arrow keys and Enter, choose another one; Esc chooses nothing.

Ctrl+O loads another model, for example a smaller one. You can continue the answer later."""

    ACTIONS = RECOVERY

    def __init__(self) -> None:
        super().__init__(id="choices", markup=False)
        self._choices: tuple[Choice, ...] = ()
        self._width = 0

    def show(self, now: tuple[Choice, ...], width: int) -> None:
        if (now, width) == (self._choices, self._width):
            return
        # an unmoved cursor means the first choice
        pointed = self._choices[self.highlighted].order if self.highlighted else ""
        self._choices, self._width = now, width
        self.clear_options()
        self.add_options([Option(choice_content(n, choice, width)) for n, choice in enumerate(now, 1)])
        self.refresh_bindings()
        orders = [choice.order for choice in now]
        self.highlighted = orders.index(pointed) if pointed in orders else 0 if orders else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "choose" or parameters[0] in range(1, len(self._choices) + 1)

    def word_of(self, run: str) -> str:
        numbers = {f"choose({n})": choice for n, choice in enumerate(self._choices, 1)}
        return _WORDS[numbers[run].order] if run in numbers else ""

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_choose(event.option_index + 1)

    def action_choose(self, number: int) -> None:
        if number <= len(self._choices):
            self.post_message(RecoveryChosen(self._choices[number - 1].order))
