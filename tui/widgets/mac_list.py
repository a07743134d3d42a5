"""The list of Macs in the trust screen."""

from __future__ import annotations

from textual.content import Content

from core.requests.trust import TrustedMac
from tui.control.keymap import MAC_LIST
from tui.state.format import DIM, fit, trust_mark
from tui.widgets.item_list import ItemList


class MacList(ItemList[TrustedMac]):
    """One line per Mac."""

    HELP = """How far each Mac is trusted. ◆ paired, ◇ seen, ○ unpaired, ✗ blocked. Prompts go to paired Macs only; a \
model has the trust of its least trusted Mac.

"sees" says what a Mac can read of a conversation with the loaded model."""

    ACTIONS = MAC_LIST
    KEY = "device_id"

    def rows_of(self, items: tuple[TrustedMac, ...], width: int) -> list[Content]:
        return [row_content(mac, items, width) for mac in items]


def head_content(macs: tuple[TrustedMac, ...], width: int) -> Content:
    return Content.styled(
        "  " + "".join(_cells(("Mac", "level", "role", "id", "sees"), _level_width(macs), width)), DIM
    )


def row_content(mac: TrustedMac, macs: tuple[TrustedMac, ...], width: int) -> Content:
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
