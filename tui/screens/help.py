"""Help for the focused pane, made from the bindings that are active there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import NamedTuple

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from tui.control.actions import KeyOwner, is_text, why_not
from tui.control.keymap import HELP, OUR_IDS
from tui.control.preferences import config_file
from tui.state.format import DIM, fit
from tui.widgets.text_view import TextView

COLUMN = 52
NARROW_COLUMN = 36
_KEYS = 13
IN_PANE, ON_SCREEN, EVERYWHERE = "In this pane", "On this screen", "Everywhere"


class HelpLine(NamedTuple):
    """The keys of an action, what it does, and why it can't be done now."""

    keys: str
    does: str
    reason: str = ""


class Keys(NamedTuple):
    """Keys and where they work."""

    head: str
    lines: tuple[HelpLine, ...]


class Topic(NamedTuple):
    """Content of the help: purpose of the pane, keys of pane and screen, and keys that work everywhere."""

    title: str
    purpose: str
    here: tuple[Keys, ...]
    everywhere: Keys


class HelpScreen(KeyOwner, ModalScreen[None]):
    """A window over the screen. Typing filters the keys."""

    CSS_PATH = "help.tcss"
    ACTIONS = HELP

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self._topic = topic
        self._typed = ""
        self._text = TextView()
        self._box = VerticalScroll(self._text, id="help", classes="pane")

    def compose(self) -> ComposeResult:
        self._box.border_title = Content(f"Help · {self._topic.title}")
        yield self._box

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def on_key(self, event: Key) -> None:
        if event.key == "backspace":
            self._typed = self._typed[:-1]
        elif event.is_printable and event.character:
            self._typed += event.character
        else:
            return
        event.stop()
        self._draw()

    def _draw(self) -> None:
        self._text.draw(help_content(searched(self._topic, self._typed), self._text.size.width))
        say = f"/ {self._typed}▌ · Esc: clear" if self._typed else "Esc: close · type to search the keys"
        self._box.border_subtitle = Content(say)

    def action_close(self) -> None:
        if not self._typed:
            self.dismiss()
        self._typed = ""
        self._draw()


def topic_of(screen: Screen[object]) -> Topic:
    focused = screen.focused
    described = next((n for n in (focused or screen).ancestors_with_self if n.HELP), screen)
    pane: dict[str, HelpLine] = {}
    whole: dict[str, HelpLine] = {}
    everywhere: dict[str, HelpLine] = {}
    for node, binding, _, tooltip in screen.active_bindings.values():
        # the focused input takes these keys as text
        if binding.id in OUR_IDS and not is_text(screen, binding.key):
            group = everywhere if isinstance(node, App) else whole if isinstance(node, Screen) else pane
            does = tooltip or binding.description
            before = f"{group[does].keys} " if does in group else ""
            key = screen.app.get_key_display(binding)
            group[does] = HelpLine(before + key, does, why_not(screen.app, node, binding.action))
    in_pane, on_screen = Keys(IN_PANE, tuple(pane.values())), Keys(screen.TITLE or ON_SCREEN, tuple(whole.values()))
    here = tuple(keys for keys in (in_pane, on_screen) if keys.lines)
    return Topic(_title(screen, described), described.HELP or "", here, Keys(EVERYWHERE, tuple(everywhere.values())))


def searched(topic: Topic, typed: str) -> Topic:
    """Only the keys whose line contains every word of `typed`."""
    if not typed.strip():
        return topic
    words = typed.casefold().split()

    def found(keys: Keys) -> Keys:
        lines = (line for line in keys.lines if all(w in f"{line.keys} {line.does}".casefold() for w in words))
        return Keys(keys.head, tuple(lines))

    here = tuple(keys for keys in map(found, topic.here) if keys.lines)
    return Topic(topic.title, "", here, found(topic.everywhere))


def _title(screen: Screen[object], described: DOMNode) -> str:
    title = described.border_title if isinstance(described, Widget) and described.border_title else ""
    pane = Content.from_markup(title).plain.strip()  # the help is markup; only its words are needed
    return " · ".join(dict.fromkeys(words for words in (screen.TITLE, pane) if words))


def help_content(topic: Topic, width: int) -> Content:
    """Purpose and keys: in two columns if `width` cells are enough for both."""
    column = COLUMN if width >= 2 * COLUMN else width // 2
    lines = [Content(topic.purpose), Content("")] if topic.purpose else []
    if not topic.here and not topic.everywhere.lines:
        lines.append(Content.styled("No key found. Ctrl+P also finds commands without a key.", DIM))
    elif column >= NARROW_COLUMN:
        rows = zip_longest(_lists(topic.here, column), _lists([topic.everywhere], column), fillvalue=Content(""))
        lines += [left.pad_right(max(0, column - left.cell_length)) + right for left, right in rows]
    else:
        lines += _lists([*topic.here, topic.everywhere], width)
    lines += [Content(""), Content.styled("To copy: drag with the mouse, then Ctrl+C; y copies the whole pane.", DIM)]
    lines += [Content.styled(f"To change keys: [keys] in {config_file()}; `macluster keys` lists them.", DIM)]
    return Content("\n").join(lines)


def _lists(groups: Sequence[Keys], width: int) -> list[Content]:
    rows: list[Content] = []
    for keys in groups:
        head = Content.styled(keys.head, "bold $primary")
        rows += [*([Content("")] if rows else []), head, *(row for line in keys.lines for row in _rows(line, width))]
    return rows


def _rows(line: HelpLine, width: int) -> list[Content]:
    does = f"{line.does} – {line.reason}" if line.reason else line.does
    style = DIM if line.reason else ""
    first, *others = wrap(does, max(1, width - _KEYS - 2))
    keys = (fit(line.keys, _KEYS), style or "bold $accent")
    return [Content.assemble(keys, (first, style)), *(Content.styled(" " * _KEYS + row, style) for row in others)]
