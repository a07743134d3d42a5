"""Small dialogs: a choice whose first answer changes nothing, and a line to type."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from core.errors import UsageError
from tui.control.actions import KeyOwner
from tui.control.keymap import ASKING
from tui.state.format import WARN
from tui.widgets.cursor_list import CursorList


class ChoiceScreen(KeyOwner, ModalScreen[int]):
    """Returns the number of the chosen answer. Esc means the first one; with `must` it does not close the dialog."""

    CSS_PATH = "dialogs.tcss"
    ACTIONS = ASKING

    HELP = """The arrow keys select, Enter chooses, Esc cancels."""

    def __init__(self, title: str, body: Content, answers: tuple[str, ...], *, must: bool = False) -> None:
        super().__init__()
        self._title, self._body, self._must = title, body, must
        self._answers = CursorList(*(Option(Content(a)) for a in answers), markup=False)

    def compose(self) -> ComposeResult:
        box = Vertical(Static(self._body, markup=False), self._answers, id="asking")
        box.border_title = Content(self._title)
        box.border_subtitle = Content("Enter: choose" if self._must else "Enter: choose · Esc: cancel")
        yield box

    def on_mount(self) -> None:
        self._answers.highlighted = 0
        self._answers.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if not (self._must and event.option_index == 0):
            self.dismiss(event.option_index)

    def action_cancel(self) -> None:
        if not self._must:
            self.dismiss(0)


class AskScreen(KeyOwner, ModalScreen[str | None]):
    """Returns the typed line or None. Shows the UsageError of `check`; an empty line only if it `may_be_empty`."""

    CSS_PATH = "dialogs.tcss"
    ACTIONS = ASKING

    HELP = """Type, then press Enter. Esc cancels."""

    def __init__(
        self,
        title: str,
        words: str,
        value: str = "",
        *,
        may_be_empty: bool = False,
        check: Callable[[str], object] = str,
    ) -> None:
        super().__init__()
        self._title, self._words, self._may_be_empty, self._check = title, words, may_be_empty, check
        self._input = Input(value, compact=True)
        self._wrong = Static(markup=False)

    def compose(self) -> ComposeResult:
        box = Vertical(Static(self._words, markup=False), self._input, self._wrong, id="asking")
        box.border_title = Content(self._title)
        box.border_subtitle = Content("Enter: OK · Esc: cancel")
        yield box

    def on_mount(self) -> None:
        self._wrong.display = False
        self._input.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        line = event.value.strip()
        if not line and not self._may_be_empty:
            return
        try:
            self._check(line)
        except UsageError as error:
            self._wrong.display = True
            self._wrong.update(Content.styled(str(error), WARN))
            return
        self.dismiss(line)

    def action_cancel(self) -> None:
        self.dismiss(None)


def words_content(words: str) -> Content:
    numbered = [f"{n:2} {word:<12}" for n, word in enumerate(words.split(), 1)]
    rows = ["".join(numbered[i::6]).rstrip() for i in range(6)]
    return Content.assemble(
        "Write these words down on paper, in this order. They are shown once and not stored.\n\n",
        ("\n".join(rows), "bold"),
        "\n\nAnyone who has them can become admin of this cluster.",
    )
