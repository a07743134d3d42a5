"""The trust screen: levels, reasons, and changes of trust."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList

from core.errors import MaclusterError
from core.events import Plan
from core.requests.trust import ForkChoice, RecoveryPhrase, RecoveryWords, Rename, Target, TrustedMac, TrustView
from core.trust.name_matching import pick
from tui.control.actions import key_title
from tui.control.keymap import MAC_LIST, TRUST
from tui.screens.base import NodeScreen, Sources, titled
from tui.screens.dialogs import AskScreen, ChoiceScreen, words_content
from tui.state.format import BAD, DIM, GOOD, TRUST_MARKS, WARN, age, fingerprint_rows, fingerprint_short, fit
from tui.state.plan_words import cable_mark
from tui.state.state import cleaned
from tui.state.trust_actions import TRUST_ACTIONS, TrustAction, checked_name, checked_phrase, question, why_not
from tui.widgets.item_list import ItemList
from tui.widgets.text_view import TextView, title_line

_KEPT = {
    "keychain": ("●", "in this Mac's keychain", GOOD),
    "file permissions": ("▲", "in a file only you can read (no keychain was open)", WARN),
}
_WITH_WORDS = ("●", GOOD, "created. Anyone who has them can become admin")
_WITHOUT_WORDS = ("▲", WARN, "none – if no admin Mac is left, all must pair again (w)")
_AS_A_RANK = "in tensor    the text: every Mac gets the token ids"
_BY_RUN = {action.run: action for action in TRUST}

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
        self._cluster.draw(cluster_content(view, self._state.snapshot.used_plan) if view else Content(""))
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
        screen = AskScreen("Lost Macs", words, may_be_empty=True, check=lambda lost: _checked_lost(lost, view))

        def recover(lost: str) -> None:
            self._begin(self._client.recover(RecoveryPhrase(words=phrase, lost=_checked_lost(lost, view))))

        self.ask_line(screen, recover)

    def action_decide(self) -> None:
        view = self._view
        if view and view.fork and self._allowed("decide"):
            keep = view.fork
            why = "Admins changed the roster separately, or someone else has an admin's key."
            notes = (f"{side[:8]}: {note}" for side, note in zip(keep, view.fork_notes, strict=True))
            body = "\n".join((f"{why} Ask who made each change.", *notes))
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
    cells = _cells(("Mac", "level", "role", "id", "sees"), _level_width(macs), width)
    return Content.styled("  " + "".join(cells), DIM)


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


def title_content(view: TrustView | None, width: int) -> Content:
    if view is None:
        return Content.styled(" Trust · loading…", "bold")
    mark = TRUST_MARKS[view.level]
    least = f" · least trusted: {fit(view.weakest, 32).rstrip()}" if view.weakest and view.level != "paired" else ""
    return title_line("Trust", f"{mark.glyph} {mark.word}{least}", width, style=mark.style)


def cluster_content(view: TrustView, plan: Plan | None = None) -> Content:
    """This Mac's key, the roster, recovery words, what `plan` sends unencrypted, and a fork if there is one."""
    glyph, kept, style = _KEPT.get(view.key_storage, ("▲", view.key_storage, WARN))
    lines = [Content.assemble("This Mac's key  ", (f"{glyph} ", style), kept)]
    if view.epoch == 0:
        lines.append(Content.assemble("Roster          ", ("○ ", WARN), "none yet: p pairs this Mac with another one"))
    else:
        role = "this Mac is admin" if view.is_admin else "this Mac isn't admin"
        lines.append(
            Content.assemble(
                f"Roster          epoch {view.epoch}, adopted {age(view.roster_age_s)} ago",
                (f" · {view.roster_hash[:8]} · {role}", DIM),
            )
        )
        glyph, style, words = _WITH_WORDS if view.has_recovery else _WITHOUT_WORDS
        lines.append(Content.assemble("Recovery words  ", (f"{glyph} ", style), words))
    lines += _weakest(view)
    if plain := cable_mark(plan):
        added_up = f"{plain.word}: what the Macs add up over RDMA"
        lines.append(Content.assemble("Cable           ", (f"{plain.glyph} ", plain.style), added_up))
    if view.fork:
        ours, *theirs = (h[:8] for h in view.fork)
        what = f"Two rosters of epoch {view.epoch}"
        if view.fork_epoch < view.epoch or len(theirs) > 1:
            what = f"{len(view.fork)} rosters that differ from epoch {view.fork_epoch} on"
        lines.append(Content.styled(f"✗ {what}, {ours} (this Mac) and {', '.join(theirs)}. d chooses one.", BAD))
    return Content("\n").join(lines)


def _weakest(view: TrustView) -> list[Content]:
    weak = next((m for m in view.macs if m.name == view.weakest and m.level == view.level), None)
    if weak is None or not weak.reason:
        return []
    mark = TRUST_MARKS[weak.level]
    return [Content.assemble("Least trusted   ", (f"{mark.glyph} ", mark.style), f"{weak.name}: {weak.reason}")]


def mac_content(view: TrustView, mac: TrustedMac, width: int, *, whole: bool) -> Content:
    """All about one Mac, and the possible actions; its fingerprint `whole`, or its ends."""
    mark = TRUST_MARKS[mac.level]
    could_be_a_rank = mac.level == "paired" and not mac.is_self and "token ids" not in mac.sees
    lines = [
        Content.assemble((f"{mark.glyph} {mark.word}", mark.style), (f" · {mac.role} · {mac.device_id[:8]}", DIM)),
        *([Content(f"{mac.reason}")] if mac.reason else []),
        Content.assemble(("key SHA-256  ", DIM), _key(mac, width, whole=whole)),
        *([Content.assemble(("since epoch  ", DIM), str(mac.added_epoch))] if mac.added_epoch else []),
        Content.assemble(("sees         ", DIM), mac.sees or "nothing (it isn't part of the loaded model)"),
        *([Content.styled(_AS_A_RANK, DIM)] if could_be_a_rank else []),
        Content(""),
    ]
    return Content("\n").join([*lines, *_actions_content(view, mac)])


def _actions_content(view: TrustView, mac: TrustedMac) -> list[Content]:
    reasons: dict[str, list[TrustAction]] = {}
    for action in TRUST_ACTIONS:
        reasons.setdefault(why_not(view, mac, action), []).append(action)
    lines: list[Content] = []
    for why, actions in sorted(reasons.items()):
        if why and view.fork is None:
            actions = [p for p in actions if p != "decide"]  # nothing to decide without a fork
        if why and actions:
            lines += [*([Content("")] if lines else []), Content.styled(why, WARN)]
        for action in actions:
            key_action = _BY_RUN[action]
            key = (f"{key_title(key_action.keys)} ", DIM if why else "bold $accent")
            lines.append(Content.assemble(key, (key_action.title, DIM if why else "")))
    return lines


def _key(mac: TrustedMac, width: int, *, whole: bool) -> str:
    if not mac.fingerprint:
        return "shown once it is paired"
    if not whole:
        return f"{fingerprint_short(mac.fingerprint)}  (f: all)"
    return fingerprint_rows(mac.fingerprint, 8 if width >= 54 else 4)
