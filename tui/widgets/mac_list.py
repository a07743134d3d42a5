"""The list of Macs in the trust screen."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from core.requests import TrustedMac
from tui.control.bindings import bindings
from tui.control.keymap import MAC_LIST
from tui.state.format import DIM, fit, trust_mark


class MacList(OptionList):
    """A line a Mac; the cursor decides whom the details and the keys are about."""

    HELP = """Who is trusted how far. ◆ paired, ◇ seen, ○ unpaired, ✗ blocked: prompts go \
to paired Macs only, and a plan is trusted as far as its weakest Mac.

"sees" is what the loaded model lets a Mac see of a conversation."""

    ACTIONS = MAC_LIST
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(MAC_LIST)]

    def __init__(self, device_id: str = "") -> None:
        """The cursor begins on the Mac with that id."""
        super().__init__(id="macs", markup=False)
        self._macs: tuple[TrustedMac, ...] = ()
        self._first_id = device_id

    def show(self, macs: tuple[TrustedMac, ...]) -> None:
        """List `macs`; the cursor stays on the Mac it was on."""
        if macs != self._macs:
            pointed = self.pointed
            self._macs = macs
            self._draw(pointed.device_id if pointed else self._first_id)

    @property
    def pointed(self) -> TrustedMac | None:
        """The Mac under the cursor."""
        at = self.highlighted
        return self._macs[at] if at is not None and at < len(self._macs) else None

    def on_resize(self) -> None:
        """Another width: draw again."""
        pointed = self.pointed
        self._draw(pointed.device_id if pointed else self._first_id)

    def _draw(self, device_id: str) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        self.clear_options()
        self.add_options([Option(row_content(m, self._macs, width)) for m in self._macs])
        ids = [m.device_id for m in self._macs]
        self.highlighted = ids.index(device_id) if device_id in ids else 0 if ids else None


def head_content(macs: tuple[TrustedMac, ...], width: int) -> Content:
    """The head line above the rows of `macs`."""
    return Content.styled(
        "  " + "".join(_cells(("Mac", "level", "role", "id", "sees"), _level_width(macs), width)), DIM
    )


def row_content(mac: TrustedMac, macs: tuple[TrustedMac, ...], width: int) -> Content:
    """The row of one of `macs`, in exactly `width` cells."""
    mark = trust_mark(mac.level)
    texts = (mac.name, mark.word, mac.role, mac.device_id[:8], mac.sees or "–")
    name, level, *others = _cells(texts, _level_width(macs), width)
    bold = "bold" if mac.is_self else ""
    return Content.assemble((mark.glyph + " ", mark.style), (name, bold), (level, mark.style), "".join(others))


def _level_width(macs: tuple[TrustedMac, ...]) -> int:
    return 1 + max(len("level"), *(len(trust_mark(m.level).word) for m in macs))


def _cells(texts: tuple[str, ...], level_width: int, width: int) -> tuple[str, ...]:
    room = width - 2 - level_width - 18
    left = max(10, min(24, room - 30))
    name, level, role, short_id, sees = texts
    return fit(name, left - 1) + " ", fit(level, level_width), fit(role, 9), fit(short_id, 9), fit(sees, room - left)
