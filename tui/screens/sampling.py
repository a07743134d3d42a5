"""The chat settings screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from core.requests.conversations import ChatOptions
from tui.control.keymap import SAMPLING
from tui.screens.base import NodeScreen, Sources
from tui.state.chats import PRESETS, option_words
from tui.state.format import BAD, DIM
from tui.state.sampling import FIELDS, PRESET, options_of, texts_of
from tui.widgets.cursor_list import CURSOR, CursorList
from tui.widgets.text_view import TextView, title_line


class SamplingScreen(NodeScreen):
    """Presets, and a line for every setting; nothing changes until Enter."""

    TITLE = "Chat settings"
    ACTIONS = SAMPLING

    HELP = """Settings for the answers in this conversation. Enter saves them from the next question on; Esc cancels.

A preset fills in the first lines. Settings that differ from the defaults are shown in the chat's title and saved with \
the conversation."""

    def __init__(self, sources: Sources, at: str = "temperature") -> None:
        super().__init__(sources)
        self._options, self._use, self._at = sources.state.chat.options, sources.chat.ask_with, at
        self._presets = CursorList(*(Option(_preset(name)) for name in PRESETS), id="presets", markup=False)
        texts = texts_of(self._options)
        self._inputs = {f.name: Input(texts[f.name], id=f.name.replace("_", "-"), compact=True) for f in FIELDS}
        self._labels = {f.name: Static(f"  {f.option.label}", classes="label", markup=False) for f in FIELDS}
        self._words = {f.name: TextView(classes="limits") for f in FIELDS}

    def parts(self) -> ComposeResult:
        with Vertical(id="parts"):
            with Vertical(id="presets-box", classes="pane"):
                yield self._presets
            with VerticalScroll(id="fields", classes="pane", can_focus=False):
                for field in FIELDS:
                    wide = field.kind not in (float, int)
                    with Horizontal(classes="field wide-field" if wide else "field"):
                        yield from (self._labels[field.name], self._inputs[field.name], self._words[field.name])

    def on_mount(self) -> None:
        self.query_one("#presets-box").border_title = Content("Presets")
        self.query_one("#fields").border_title = Content("Settings of this conversation")
        self.query_one("#fields").border_subtitle = Content("Enter: save · Esc: cancel")
        self._inputs[self._at].focus()

    def on_descendant_focus(self) -> None:
        for field in FIELDS:
            mark = CURSOR if self.focused is self._inputs[field.name] else " "
            self._labels[field.name].update(f"{mark} {field.option.label}")

    def on_input_changed(self, event: Input.Changed) -> None:
        self.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_use()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        preset = texts_of(ChatOptions(sampling=list(PRESETS.values())[event.option_index]))
        for name in PRESET:
            self._inputs[name].value = preset[name]
        self._inputs["temperature"].focus()

    def action_use(self) -> None:
        options, wrong = self._typed()
        if wrong:
            name = next(iter(wrong))
            self._inputs[name].focus()
            self.app.notify(f"{next(f.option.label for f in FIELDS if f.name == name)}: {wrong[name]}.")
            return
        self._use(options)
        self.dismiss()

    def _typed(self) -> tuple[ChatOptions, dict[str, str]]:
        return options_of({name: line.value for name, line in self._inputs.items()}, self._options)

    def _draw(self, width: int) -> None:
        options, wrong = self._typed()
        words = "✗ fix the marked line" if wrong else " · ".join(option_words(options)) or "defaults"
        self._title.draw(title_line("Chat settings", f" {words}", width))
        for field in FIELDS:
            why = wrong.get(field.name)
            line = Content.styled(f"✗ {why}", BAD) if why else Content.styled(field.option.hint, DIM)
            self._words[field.name].draw(line)


def _preset(name: str) -> Content:
    words = option_words(ChatOptions(sampling=PRESETS[name]))
    return Content.assemble(f"  {name:<16}", (" · ".join(words) or "always the most likely token", DIM))
