"""The trust screen: levels, reasons, and changes of trust."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList

from core.errors import MaclusterError
from core.requests.trust import ForkChoice, RecoveryPhrase, RecoveryWords, Rename, Target, TrustedMac, TrustView
from core.trust.name_matching import pick
from tui.control.keymap import MAC_LIST, TRUST
from tui.screens.base import NodeScreen, Sources, titled
from tui.screens.dialogs import AskScreen, ChoiceScreen, words_content
from tui.state.format import DIM, TRUST_MARKS, fit
from tui.state.state import cleaned
from tui.state.trust_actions import TRUST_ACTIONS, TrustAction, checked_name, checked_phrase, question, why_not
from tui.widgets.item_list import ItemList
from tui.widgets.text_view import TextView
from tui.widgets.trust_text import cluster_content, mac_content, title_content

LOOK_S = 1.0
_WORDS_ARE_KEPT = ("Keep showing them", "I have written them down")


class TrustScreen(NodeScreen):
    """The cluster, its Macs, and details of the selected one."""

    TITLE = "Trust"
    AUTO_FOCUS = "MacList"
    ACTIONS = TRUST

    HELP = """How far each Mac is trusted, and why."""

    def __init__(self, sources: Sources, device_id: str = "") -> None:
        super().__init__(sources)
        self._view: TrustView | None = None
        self._whole_key = False
        self._cluster = titled(TextView(id="cluster"), "This cluster")
        self._head = TextView(id="head")
        self._box = titled(Vertical(id="macs-box"), "Macs")
        self.list = MacList(id="macs", first=device_id)
        self._about = TextView()
        self._mac = VerticalScroll(self._about, id="mac", classes="pane")

    def parts(self) -> ComposeResult:
        yield self._cluster
        with Container(id="parts"):
            with self._box:
                yield from (self._head, self.list)
            yield self._mac

    def on_mount(self) -> None:
        self._look()
        self.set_interval(LOOK_S, self._look)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._whole_key = False
        self.redraw()

    def _look(self) -> None:
        if self._state.attached:
            self.run_worker(self._fetch(), group="trust", exclusive=True, exit_on_error=False)

    async def _fetch(self) -> None:
        try:
            self._take(await self._client.trust())
        except MaclusterError as error:
            if self._view is None:
                self._sources.show_problem(error.problem)

    def _take(self, view: TrustView) -> None:
        self._view = cleaned(view)
        self.redraw()

    def _draw(self, width: int) -> None:
        view = self._view
        self._title.draw(title_content(view, width))
        self._cluster.draw(cluster_content(view, self._state.snapshot.plan) if view else Content(""))
        if view is None:
            return
        self._head.draw(head_content(view.macs, self.list.scrollable_content_region.width))
        self.list.show_items(view.macs)
        mac = self.list.pointed
        self._mac.border_title = Content(mac.name + (" · this Mac" if mac.is_self else "") if mac else "")
        if mac:
            width = self._mac.scrollable_content_region.width
            self._about.draw(mac_content(view, mac, width, whole=self._whole_key))

    def action_fingerprint(self) -> None:
        self._whole_key = not self._whole_key
        self.redraw()

    def action_revoke(self) -> None:
        self._change("revoke", lambda mac: self._client.revoke(Target(mac=mac.device_id)))

    def action_admin(self) -> None:
        def turn(mac: TrustedMac) -> Awaitable[TrustView]:
            target = Target(mac=mac.device_id)
            return self._client.demote(target) if mac.role == "admin" else self._client.promote(target)

        self._change("admin", turn)

    def action_rotate(self) -> None:
        self._change("rotate", lambda _: self._client.rotate())

    def action_words(self) -> None:
        self._change("words", lambda _: self._client.new_recovery())

    def action_rename(self) -> None:
        if mac := self._allowed("rename"):
            words = "Its new name on every Mac of the cluster:"
            self.ask_line(
                AskScreen(f"Rename {mac.name}", words, mac.name, check=checked_name),
                lambda name: self._begin(self._client.rename(Rename(mac=mac.device_id, name=name))),
            )

    def action_recover(self) -> None:
        if self._allowed("recover"):
            words = "Type the 24 recovery words in order, separated by spaces:"
            self.ask_line(AskScreen("Recover", words, check=checked_phrase), self._ask_lost)

    def _ask_lost(self, phrase: str) -> None:
        words = "Which Macs are lost for good? They are revoked. Names or ids, separated by commas; empty for none."
        view = self._view
        assert view
        self.ask_line(
            AskScreen("Lost Macs", words, may_be_empty=True, check=lambda lost: _checked_lost(lost, view)),
            lambda lost: self._begin(
                self._client.recover(RecoveryPhrase(words=phrase, lost=_checked_lost(lost, view)))
            ),
        )

    def action_decide(self) -> None:
        view = self._view
        if view and view.fork and self._allowed("decide"):
            keep = view.fork
            reported = (
                "Admins changed the roster separately, or someone else has an admin's key. Ask who made each change."
            )
            notes = (f"{side[:8]}: {note}" for side, note in zip(keep, view.fork_notes, strict=True))
            body = "\n".join((reported, *notes))
            others = (f"{side[:8]}: the other roster" for side in keep[1:])
            answers = ("Decide later", f"{keep[0][:8]}: this Mac's roster", *others)
            title, resolve = "Which roster is right?", self._client.resolve_fork
            self.ask(title, body, answers, lambda n: self._begin(resolve(ForkChoice(keep=keep[n - 1]))))

    def why_not(self, run: str) -> str:
        action = next((action for action in TRUST_ACTIONS if action == run), None)
        return why_not(self._view, self.list.pointed, action) if self._view and action else ""

    def _allowed(self, action: TrustAction) -> TrustedMac | None:
        return None if self._view is None or self.why_not(action) else self.list.pointed

    def _change(self, action: TrustAction, call: Callable[[TrustedMac], Awaitable[TrustView | RecoveryWords]]) -> None:
        if (view := self._view) and (mac := self._allowed(action)):
            asked = question(view, mac, action)
            self.ask(asked.title, asked.effect, (asked.no, asked.yes), lambda _: self._begin(call(mac)))

    def _begin(self, call: Awaitable[TrustView | RecoveryWords]) -> None:
        self.do(self._finish(call))

    async def _finish(self, call: Awaitable[TrustView | RecoveryWords]) -> None:
        answer = await self.answer_of(call)
        if isinstance(answer, TrustView):
            self._take(answer)
        elif answer:
            words = ChoiceScreen("Recovery words", words_content(cleaned(answer).words), _WORDS_ARE_KEPT, must=True)
            self.app.push_screen(words)
            self._look()


def _checked_lost(names: str, view: TrustView) -> tuple[str, ...]:
    """The lost Macs, typed with commas between them. Raises UsageError for one that isn't in the roster."""
    typed = tuple(name.strip() for name in names.split(",") if name.strip())
    for name in typed:
        pick(name, [(mac.device_id, mac.name) for mac in view.macs if mac.role in ("admin", "member")])
    return typed


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
    mark = TRUST_MARKS[mac.level]
    texts = (mac.name, mark.word, mac.role, mac.device_id[:8], mac.sees or "–")
    name, level, *others = _cells(texts, _level_width(macs), width)
    bold = "bold" if mac.is_self else ""
    return Content.assemble((mark.glyph + " ", mark.style), (name, bold), (level, mark.style), "".join(others))


def _level_width(macs: tuple[TrustedMac, ...]) -> int:
    return 1 + max(len("level"), *(len(TRUST_MARKS[m.level].word) for m in macs))


def _cells(texts: tuple[str, ...], level_width: int, width: int) -> tuple[str, ...]:
    room = width - 2 - level_width - 18
    left = max(10, min(24, room - 30))
    name, level, role, short_id, sees = texts
    return fit(name, left - 1) + " ", fit(level, level_width), fit(role, 9), fit(short_id, 9), fit(sees, room - left)
