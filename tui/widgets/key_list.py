"""The list of API keys, with each key's running requests."""

from __future__ import annotations

from textual.content import Content

from core.events import ApiClient
from core.trust.api_keys import PREFIX
from tui.control.keymap import KEY_LIST
from tui.state.format import DIM, GOOD, Mark, fit, moment, plural
from tui.widgets.item_list import ItemList

_ASKS, _RESTS = Mark("●", "in use", GOOD), Mark("○", "idle", DIM)


class KeyList(ItemList[ApiClient]):
    """One line per API key."""

    HELP = """A key for each program or person that may use this Mac. ● in use, ○ idle.

This Mac stores only a hash of a key and its last four characters. A lost key can't be shown again. Make a new one and \
revoke the old one."""

    ACTIONS = KEY_LIST
    KEY = "name"

    def rows_of(self, items: tuple[ApiClient, ...], width: int) -> list[Content]:
        return [_row_content(client, width) for client in items]


def head_content(width: int) -> Content:
    return Content.styled("  " + "".join(_cells(("name", "key", "now", "made"), width)), DIM)


def masked(client: ApiClient) -> str:
    if not client.made:
        return "–"
    return f"{PREFIX}…{client.hint}" if client.hint else "…"


def _row_content(client: ApiClient, width: int) -> Content:
    mark = _ASKS if client.asking else _RESTS
    now = plural(client.asking, "request") if client.asking else mark.word
    made = moment(client.made)[:10] if client.made else "–"
    name, key, asking, since = _cells((client.name, masked(client), now, made), width)
    return Content.assemble((mark.glyph + " ", mark.style), name, key, (asking, mark.style), since)


def _cells(texts: tuple[str, ...], width: int) -> tuple[str, ...]:
    name, key, now, made = texts
    left = max(8, width - 2 - 11 - 12 - 10)
    return fit(name, left - 1) + " ", fit(key, 11), fit(now, 12), fit(made, width - 2 - left - 11 - 12)
