"""The screen of one Mac: facts, tried addresses, layers, and why it is not trusted or not reached."""

from __future__ import annotations

import textwrap

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from core.events import Peer, Plan
from core.requests.trust import TrustedMac
from tui.control.keymap import PEER
from tui.control.messages import Copied, MacAction, MacAsked
from tui.screens.base import NodeScreen, Sources, titled
from tui.state.disabled_reasons import why_not_mac
from tui.state.format import BAD, DIM, WARN, duration, fingerprint, gigabytes, peer_trust
from tui.state.plan_words import is_of_ranks, part_of
from tui.state.recovery import mac_mark
from tui.state.state import UiState, cleaned
from tui.widgets.text_view import TextView, title_line

_LABEL = 16
_FOUND_BY = {"self": "", "bonjour": "Bonjour", "address": "an address you gave"}


class PeerScreen(NodeScreen):
    """All about one Mac. The roster is fetched once, and again when the Mac's level changes."""

    TITLE = "Mac details"
    AUTO_FOCUS = "#facts"
    ACTIONS = PEER

    HELP = """What this Mac knows about another one. "unreachable" says which address was tried and what happened. \
Addresses are tried in the order shown here.

"sees" says what that Mac can read of a conversation with the loaded model."""

    def __init__(self, sources: Sources, device_id: str) -> None:
        super().__init__(sources)
        self._device_id = device_id
        self._trusted: TrustedMac | None = None
        self._text = TextView()
        self._box = titled(VerticalScroll(self._text, id="facts"), "Details")

    def parts(self) -> ComposeResult:
        yield self._box

    def on_mount(self) -> None:
        self._ask_roster()

    def show(self, state: UiState) -> None:
        before = self._peer
        super().show(state)
        if self._peer is not None and before is not None and self._peer.trust != before.trust:
            self._ask_roster()

    def _draw(self, width: int) -> None:
        self._title.draw(peer_title(self._peer, width))
        inside = self._box.scrollable_content_region.width
        gone = Content("This Mac is no longer on the network.")
        self._text.draw(peer_content(self._state, self._peer, self._trusted, inside) if self._peer else gone)

    @property
    def _peer(self) -> Peer | None:
        return next((p for p in self._state.snapshot.peers if p.device_id == self._device_id), None)

    def _ask_roster(self) -> None:
        self.run_worker(self._fetch(), group="trust", exclusive=True, exit_on_error=False)

    async def _fetch(self) -> None:
        if view := cleaned(await self.answer_of(self._client.trust())):
            self._trusted = next((mac for mac in view.macs if mac.device_id == self._device_id), None)
            self.redraw()

    def why_not(self, run: str) -> str:
        return why_not_mac(self._state, self._peer, run)

    def action_ask(self, action: MacAction) -> None:
        self.post_message(MacAsked(self._device_id, action))

    def action_copy_text(self) -> None:
        self.post_message(Copied(self._text.shown.plain))


def peer_title(peer: Peer | None, width: int) -> Content:
    if peer is None:
        return title_line("A Mac that left", "", width)
    mark = peer_trust(peer)
    return title_line(f"{peer.name}{' · this Mac' if peer.is_self else ''}", f"{mark.glyph} {mark.word}", width)


def peer_content(state: UiState, peer: Peer, trusted: TrustedMac | None, width: int) -> Content:
    """All facts in `width` cells; `trusted` comes from the roster, None until the node answered."""
    mark, trust = mac_mark(state, peer), peer_trust(peer)
    skipped = "left out; Space includes it again" if peer.device_id in state.skipped else ""
    rows = [
        _row("state", Content.assemble((f"{mark.glyph} {mark.word}", mark.style)), _link(peer)),
        _row("trust", Content.assemble((f"{trust.glyph} {trust.word}", trust.style)), trusted.role if trusted else ""),
        *_wrapped("", trusted.reason if trusted else "", width, WARN),
        *_wrapped("id", peer.device_id, width),
        *_wrapped("key SHA-256", fingerprint(trusted.fingerprint) if trusted else "", width),
        Content(""),
        *_wrapped("found by", _FOUND_BY[peer.found_by], width),
        *_wrapped("address", peer.address, width),
        *_wrapped("also at", ", ".join(peer.also_at), width),
        *_wrapped("version" if peer.state == "needs an update" else "unreachable", peer.problem, width, BAD),
        Content(""),
        *_machine(peer, width),
        Content(""),
        *_wrapped("layers", _held(state.snapshot.used_plan, peer.device_id), width),
        *_wrapped("next load", skipped, width, WARN),
        *_wrapped("sees", trusted.sees if trusted else "", width),
    ]
    return Content("\n").join(_without_doubles(rows))


def _link(peer: Peer) -> str:
    if peer.is_self:
        return "this Mac"
    return f"round trip {duration(peer.rtt_s)}" if peer.rtt_s is not None else ""


def _machine(peer: Peer, width: int) -> list[Content]:
    memory = f"{gigabytes(peer.memory_bytes)} GB" if peer.memory_bytes else ""
    starting = "not ready for models yet" if peer.memory_bytes else ""
    budget = f"{gigabytes(peer.budget_bytes)} GB for models" if peer.budget_bytes else starting
    used = f"{gigabytes(peer.used_bytes)} GB in use" if peer.used_bytes else ""
    worker = f"{peer.worker_pid}, {gigabytes(peer.worker_rss_bytes)} GB" if peer.worker_pid else ""
    spare = f"spare process, {gigabytes(peer.spare_rss_bytes)} GB" if peer.spare_rss_bytes else ""
    facts = " · ".join(fact for fact in (memory, budget, used) if fact)
    unknown = "" if peer.chip or facts else "known once it is paired and connected"
    return [
        *_wrapped("chip", peer.chip or unknown, width),
        *_wrapped("memory", facts, width),
        *_wrapped("macluster", " · ".join(filter(None, (peer.version, peer.runs_on))), width),
        *_wrapped("process", " · ".join(fact for fact in (worker, spare) if fact), width),
    ]


def _held(plan: Plan | None, device_id: str) -> str:
    stage = next((s for s in plan.stages if s.device_id == device_id), None) if plan else None
    if plan is None:
        return "no model is loaded"
    if plan.prefill and plan.prefill.stage.device_id == device_id:
        return f"prefill of prompts from {plan.prefill.least} tokens on, with all of {plan.model}"
    if stage is None:
        return f"none of {plan.model}"
    share = f"{gigabytes(stage.weight_bytes)} GB weights, {gigabytes(stage.kv_bytes)} GB cache"
    of = len(plan.stages) if is_of_ranks(plan) else plan.layers
    return f"{part_of(plan, stage)} of {of}, {plan.model}: {share}"


def _row(label: str, value: Content, more: str) -> Content:
    return Content.assemble((f"{label:<{_LABEL}}", DIM), value, (f" · {more}" if more else "", DIM))


def _wrapped(label: str, text: str, width: int, style: str = "") -> list[Content]:
    if not text:
        return []
    lines = textwrap.wrap(text, max(20, width - _LABEL))
    labels = (label, *[""] * (len(lines) - 1))
    pairs = zip(labels, lines, strict=True)
    return [Content.assemble((f"{each:<{_LABEL}}", DIM), (line, style)) for each, line in pairs]


def _without_doubles(rows: list[Content]) -> list[Content]:
    return [row for at, row in enumerate(rows) if row.plain or (at and rows[at - 1].plain)]
