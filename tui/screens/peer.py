"""The screen of one Mac: facts, tried addresses, layers, and why it is not trusted or not reached."""

from __future__ import annotations

from textual.actions import parse
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from core.events import Peer
from core.requests.trust import TrustedMac
from tui.control.keymap import PEER
from tui.control.messages import Copied, MacAction, MacAsked
from tui.screens.base import NodeScreen, Sources, titled
from tui.state.disabled_reasons import why_not_mac
from tui.state.state import UiState, cleaned
from tui.widgets.peer_text import peer_content, peer_title
from tui.widgets.text_view import TextView


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
        _, name, words = parse(run)
        return why_not_mac(self._state, self._peer, str(words[0])) if name == "ask" else ""

    def action_ask(self, action: MacAction) -> None:
        self.post_message(MacAsked(self._device_id, action))

    def action_copy_text(self) -> None:
        self.post_message(Copied(self._text.shown.plain))
