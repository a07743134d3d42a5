"""Help for the focused pane, made from the bindings that are active there."""

from __future__ import annotations

from itertools import zip_longest
from typing import ClassVar, NamedTuple

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from tui.actions import bindings
from tui.format import DIM, fit
from tui.registry import HELP, OUR_IDS

COLUMN = 52
NAMED_CHARACTERS = ("slash", "question_mark", "left_square_bracket", "right_square_bracket")


class Topic(NamedTuple):
    """What the help says: the purpose of the pane, then (keys, what they do) of the pane and of everywhere."""

    title: str
    purpose: str
    here: tuple[tuple[str, str], ...]
    everywhere: tuple[tuple[str, str], ...]


class HelpScreen(ModalScreen[None]):
    """A window over the screen that asked."""

    CSS_PATH = "help.tcss"
    ACTIONS = HELP
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(HELP)]

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self._topic = topic
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        """One scrollable text."""
        box = VerticalScroll(self._text, id="help", classes="pane")
        box.border_title = Content(f"Help · {self._topic.title}")
        box.border_subtitle = Content("Esc close")
        yield box

    def on_resize(self) -> None:
        """Draw for the width there is."""
        self.call_after_refresh(lambda: self._text.update(help_content(self._topic, self._text.size.width)))

    def action_close(self) -> None:
        """Back to where the person was; the focus there has not moved."""
        self.dismiss()


def topic_of(screen: Screen[object]) -> Topic:
    """The help for what is focused on `screen`."""
    focused = screen.focused
    described = next((n for n in (focused or screen).ancestors_with_self if n.HELP), screen)
    title = described.border_title if isinstance(described, Widget) and described.border_title else ""
    # keys that the focused input takes as text do nothing else there
    printable = {k for k, a in screen.active_bindings.items() if len(k) == 1 or k in NAMED_CHARACTERS}
    here: dict[str, tuple[list[str], str]] = {}
    everywhere: dict[str, tuple[list[str], str]] = {}
    for node, binding, _, tooltip in screen.active_bindings.values():
        typed = focused is not None and binding.key in printable and focused.check_consume_key(binding.key, "x")
        if binding.id in OUR_IDS and not typed:
            group = everywhere if isinstance(node, App | Screen) else here
            keys, _ = group.setdefault(binding.id or "", ([], tooltip or binding.description))
            keys.append(screen.app.get_key_display(binding))
    return Topic(
        _plain(title) or _name(described),
        described.HELP or "",
        tuple((" ".join(keys), does) for keys, does in here.values()),
        tuple((" ".join(keys), does) for keys, does in everywhere.values()),
    )


def _plain(title: str) -> str:
    # a title is kept as markup; only its words are wanted
    return Content.from_markup(title).plain.strip() if title else ""


def _name(node: DOMNode) -> str:
    return type(node).__name__.removesuffix("Screen")


def help_content(topic: Topic, width: int) -> Content:
    """Purpose, then the keys: in two columns if `width` cells hold both, else one list after the other."""
    here, everywhere = _keys("In this pane", topic.here), _keys("Everywhere", topic.everywhere)
    lines = [Content(topic.purpose), Content("")]
    if width >= 2 * COLUMN:
        rows = zip_longest(here, everywhere, fillvalue=Content(""))
        lines += [left.pad_right(max(0, COLUMN - left.cell_length)) + right for left, right in rows]
    else:
        lines += [*here, Content(""), *everywhere]
    lines += [Content(""), Content.styled("Copy: drag with the mouse, then Ctrl+C; or y for what the pane shows.", DIM)]
    return Content("\n").join(lines)


def _keys(head: str, keys: tuple[tuple[str, str], ...]) -> list[Content]:
    return [
        Content.styled(head, "bold $primary"),
        *(Content.assemble((fit(key, 11), "bold $accent"), does) for key, does in keys),
    ]
