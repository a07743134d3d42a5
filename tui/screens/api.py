"""The API screen: address, keys, running requests, and text to paste into other programs."""

from __future__ import annotations

from typing import Final

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content

from core.errors import UsageError
from core.events import ApiClient, BatchRow, Snapshot
from core.requests.api import ApiKeyName
from core.trust.api_keys import PREFIX
from tui.control.keymap import API, KEY_LIST
from tui.control.messages import Copied
from tui.screens.base import NodeScreen, Sources, titled
from tui.screens.dialogs import AskScreen, ChoiceScreen
from tui.state.disabled_reasons import NO_NODE
from tui.state.format import BAD, DIM, GOOD, WARN, Mark, fingerprint_short, fit, moment, plural
from tui.state.seat import unasked_words
from tui.state.snippets import KEY, SNIPPETS, text_of
from tui.state.state import cleaned
from tui.widgets import row_list
from tui.widgets.item_list import ItemList
from tui.widgets.row_list import RowList
from tui.widgets.text_view import TextView, title_line

_CLIENTS = tuple(SNIPPETS)
_KEY_ANSWERS = ("Keep showing it", "Copy key", "Done")
_ASKS, _RESTS = Mark("●", "in use", GOOD), Mark("○", "idle", DIM)
NO_KEYS: Final = Content("No keys yet. n makes one.")
NO_REQUESTS: Final = Content("No requests right now. Running requests appear here; x stops one.")


class KeyList(ItemList[ApiClient]):
    """One line per API key."""

    HELP = """A key for each program or person that may use this Mac. ● in use, ○ idle.

This Mac stores only a hash of a key and its last four characters. A lost key can't be shown again. Make a new one and \
revoke the old one."""

    ACTIONS = KEY_LIST
    KEY = "name"

    def rows_of(self, items: tuple[ApiClient, ...], width: int) -> list[Content]:
        return [_key_content(client, width) for client in items]


class ApiScreen(NodeScreen):
    """The API: its address, keys, running requests, and what to paste into other programs."""

    TITLE = "Other programs"
    AUTO_FOCUS = "KeyList"
    ACTIONS = API

    HELP = """Let other programs use this cluster: the address, the keys, current requests, and what to paste.

`macluster serve` can serve other machines too."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._program = _CLIENTS[0]
        self._address = titled(TextView(id="address"), "Address")
        self._keys_head, self._rows_head = TextView(id="keys-head"), TextView(id="rows-head")
        self.keys, self.rows = KeyList(id="api-keys"), RowList()
        self.keys.border_title, self.rows.border_title = "Keys", "Requests"  # their names in the help
        self._keys_box = titled(Vertical(self._keys_head, self.keys, id="keys-box"), "Keys")
        self._rows_box = titled(Vertical(self._rows_head, self.rows, id="rows-box"), "Requests")
        self._text = TextView()
        self._paste = VerticalScroll(self._text, id="paste", classes="pane")

    def parts(self) -> ComposeResult:
        yield self._address
        yield Container(self._keys_box, self._rows_box, id="parts")
        yield self._paste

    def on_descendant_focus(self) -> None:
        self.refresh_bindings()

    def _draw(self, width: int) -> None:
        now = self._state.snapshot
        rows, inner = requests_of(now), self.rows.scrollable_content_region.width
        self._title.draw(title_content(now, width))
        self._address.draw(address_content(now, attached=self._state.attached))
        keys_width = self.keys.scrollable_content_region.width
        self._keys_head.draw(keys_head(keys_width) if now.clients else NO_KEYS)
        self._rows_head.draw(row_list.head_content(inner) if rows else NO_REQUESTS)
        self.keys.show_items(now.clients)
        self.rows.show(rows, "")
        at = f"{_CLIENTS.index(self._program) + 1} of {len(_CLIENTS)}"
        self._paste.border_title = Content(f"‹ {SNIPPETS[self._program].title} › {at}")
        self._text.draw(paste_content(self._program, now, self._paste.scrollable_content_region.width))

    def why_not(self, run: str) -> str:
        if run in ("serve", "new_key", "end") and not self._state.attached:
            return NO_NODE
        if run != "end":
            return ""
        if self._is_about_rows:
            return "" if self.rows.pointed else "There are no requests."
        return "" if self.keys.pointed and self.keys.pointed.made else "There is no key to revoke."

    def word_of(self, run: str) -> str:
        if run == "end":
            return "Stop" if self._is_about_rows else "Revoke"
        return ("Off" if self._state.snapshot.api else "On") if run == "serve" else ""

    @property
    def _is_about_rows(self) -> bool:
        return self.focused is self.rows

    def action_serve(self) -> None:
        now = self._state.snapshot
        if now.api is None:
            self.do(self._client.start_api())
        elif not requests_of(now):
            self.do(self._client.stop_api())
        else:
            effect, answers = "Requests in progress will be cut off.", ("Keep serving", "Stop serving")
            self.ask("Stop serving?", effect, answers, lambda _: self.do(self._client.stop_api()))

    def action_new_key(self) -> None:
        words = "What is it for? The name of a program or person:"
        self.ask_line(AskScreen("New key", words, check=self._free_name), lambda name: self.do(self._make(name)))

    def action_end(self) -> None:
        row, key = self.rows.pointed, self.keys.pointed
        if self._is_about_rows and row is not None:
            self._stop(row)
        elif not self._is_about_rows and key is not None:
            self._revoke(key)

    def action_program(self, step: int) -> None:
        self._program = _CLIENTS[(_CLIENTS.index(self._program) + step) % len(_CLIENTS)]
        self._paste.scroll_home(animate=False)
        self.redraw()

    def action_copy(self) -> None:
        self.post_message(Copied(text_of(self._program, self._state.snapshot)))

    def _free_name(self, name: str) -> None:
        if any(key.name == name for key in self._state.snapshot.clients if key.made):
            raise UsageError(f"A key named {name} already exists.", "Choose another name.")

    def _stop(self, row: BatchRow) -> None:
        effect = "The program gets what is written so far."
        title = f"Stop the request of {row.client}?"
        answers = ("Let it continue", "Stop it")
        self.ask(title, effect, answers, lambda _: self.do(self._client.cancel(row.request_id)))

    def _revoke(self, key: ApiClient) -> None:
        effect = "Programs with this key can't connect any more. Requests that already run will finish."
        title, wanted = f"Revoke the key {key.name}?", ApiKeyName(name=key.name)
        answers = ("Cancel", "Revoke key")
        self.ask(title, effect, answers, lambda _: self.do(self._client.revoke_api_key(wanted)))

    async def _make(self, name: str) -> None:
        made = cleaned(await self.answer_of(self._client.new_api_key(ApiKeyName(name=name))))
        if made is None:
            return
        advice = "\n\nCopy this key now – you won't see it again (only a hash is stored)."
        body = Content.assemble((made.key, "bold"), advice)

        def close(chosen: int | None) -> None:
            if chosen == _KEY_ANSWERS.index("Copy key"):
                self.post_message(Copied(made.key))

        self.app.push_screen(ChoiceScreen(f"Key {made.name}", body, _KEY_ANSWERS, must=True), close)


def requests_of(now: Snapshot) -> tuple[BatchRow, ...]:
    return tuple(row for row in now.batch.rows if row.client)


def title_content(now: Snapshot, width: int) -> Content:
    asking = sum(client.asking for client in now.clients)
    asked = plural(asking, "request") if asking else "no requests"
    if waits := _waiting(now, asking):
        asked += f", {waits} queued"
    state, style = (f"● on · {asked}", GOOD) if now.api else ("○ off", DIM)
    return title_line("Other programs", state, width, style=style)


def _waiting(now: Snapshot, asking: int) -> int:
    running = now.batch.running
    if now.plan is None or not running or not (now.batch.queue or len(running) >= now.plan.rows):
        return 0
    return max(0, asking - sum(bool(row.client) for row in running))


def address_content(now: Snapshot, *, attached: bool) -> Content:
    if not attached:
        return Content.styled("✗ macluster's service doesn't answer; retrying every second.", BAD)
    api = now.api
    if api is None:
        words = "Press o to let programs on this Mac use the model (other machines can't)."
        return Content.assemble(("○ off  ", DIM), words, "\n", _answers(now))
    lines = [Content.assemble(("● on   ", GOOD), api.url, "  ", _answers(now))]
    if api.fingerprint:
        lines.append(Content.assemble(("certificate SHA-256  ", DIM), fingerprint_short(api.fingerprint)))
    if api.warning:
        lines.append(Content.styled(f"▲ {api.warning}", WARN))
    return Content("\n").join(lines)


def paste_content(client: str, now: Snapshot, width: int) -> Content:
    snippet = SNIPPETS[client]
    lines = [Content.styled(snippet.where, DIM), Content(text_of(client, now)), Content("")]
    note = f"{KEY} stands for a key. n makes one and shows it once."
    return Content("\n").join([*lines, Content.styled(fit(note, max(width, 1)).rstrip(), DIM)])


def _answers(now: Snapshot) -> Content:
    if now.host:
        return Content.styled(unasked_words(now) or f"Serving {now.host.model} (loaded by {now.host.led_by}).", DIM)
    if now.plan is None:
        return Content.styled("No model is loaded. Ctrl+O chooses one.", WARN)
    if now.plan_status != "ready":
        return Content.styled(f"{now.plan.model} isn't ready.", WARN)
    return Content.styled(f"Serving {now.plan.model.rpartition('/')[2]}.", DIM)


def keys_head(width: int) -> Content:
    return Content.styled("  " + "".join(_key_cells(("name", "key", "now", "made"), width)), DIM)


def masked(client: ApiClient) -> str:
    if not client.made:
        return "–"
    return f"{PREFIX}…{client.hint}" if client.hint else "…"


def _key_content(client: ApiClient, width: int) -> Content:
    mark = _ASKS if client.asking else _RESTS
    now = plural(client.asking, "request") if client.asking else mark.word
    made = moment(client.made)[:10] if client.made else "–"
    name, key, asking, since = _key_cells((client.name, masked(client), now, made), width)
    return Content.assemble((mark.glyph + " ", mark.style), name, key, (asking, mark.style), since)


def _key_cells(texts: tuple[str, ...], width: int) -> tuple[str, ...]:
    name, key, now, made = texts
    left = max(8, width - 2 - 11 - 12 - 10)
    return fit(name, left - 1) + " ", fit(key, 11), fit(now, 12), fit(made, width - 2 - left - 11 - 12)
