"""What a person can do about the other Macs: pair, add by address, look again, use or skip, forget."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.content import Content

from core.address import Place, parse_place
from core.errors import UsageError
from core.events import Peer
from core.requests import Address, PairingOffer, Target, TrustedMac
from tui.screens.asking import AskScreen, ChoiceScreen
from tui.screens.pairing import PairingScreen
from tui.screens.peer import PeerScreen
from tui.screens.trust import TrustScreen
from tui.state import state
from tui.state.trust_actions import question, why_not
from tui.widgets.messages import MacWish

if TYPE_CHECKING:
    from tui.app import MaclusterApp

_WINDOW = "The address that the other Mac shows once p was pressed there, HOST:PORT:"
_NO_PLACE = "That is no HOST:PORT, such as 192.168.1.7:50123."


class MacController:
    """Reads and sets the state of `app`, and tells its person what cannot be now."""

    def __init__(self, app: MaclusterApp) -> None:
        self._app = app

    def act(self, device_id: str, wish: MacWish) -> None:
        """Do that with that Mac."""
        app, peer = self._app, self._find(device_id)
        match wish:
            case "add":
                self._add(peer)
            case _ if peer is None:
                app.note_down("That Mac left.")
            case "details":
                app.push_screen(PeerScreen(app.client, app.state, device_id))
            case "trust":
                app.push_screen(TrustScreen(app.client, app.state, device_id))
            case "pair":
                is_stranger = peer in state.strangers(app.state)
                self.pair(device_id if is_stranger else "")
            case "skip":
                self._skip(peer)
            case "forget":
                app.command(self._forget(peer))

    def pair(self, device_id: str = "") -> None:
        """Open the pairing dialog, with a Mac that is chosen already or the list of those that were seen."""
        app = self._app
        if not app.state.attached:
            app.note_down("The node of this Mac is not running.")
        elif not isinstance(app.screen, PairingScreen):
            app.push_screen(PairingScreen(app.client, app.state, self._find(device_id)))

    def offers(self) -> Iterator[SystemCommand]:
        """For the palette: a "Pair" for every Mac that was seen."""
        for peer in state.strangers(self._app.state):
            yield SystemCommand(f"Pair {peer.name}", f"Mac {peer.short_id}", partial(self.pair, peer.device_id))

    async def rescan(self) -> None:
        """Look for all of them now. Raises what `tui.control.bridge.FAILURES` lists."""
        await self._app.client.rescan()
        self._app.note_down("Looking for Macs again, by Bonjour and at every known address.")

    def _find(self, device_id: str) -> Peer | None:
        return next((p for p in self._app.state.snapshot.peers if p.device_id == device_id), None)

    def _add(self, peer: Peer | None) -> None:
        """For a paired Mac that is not linked: where it is. Else a pairing with whoever is at that address."""
        is_known = peer is not None and not peer.is_self and peer not in state.strangers(self._app.state)
        if peer is not None and is_known and peer.state in ("seen", "lost"):
            words = f"Where does the node of {peer.name} listen? HOST:PORT:"
            asked = AskScreen(f"The address of {peer.name}", words, peer.address)
            self._app.push_screen(asked, partial(self._know, peer.device_id))
        else:
            self._app.push_screen(AskScreen("Add a Mac by address", _WINDOW), self._knock)

    def _know(self, device_id: str, line: str | None) -> None:
        if place := self._place(line):
            address = Address(device_id=device_id, host=place.host, port=place.port)
            self._app.command(self._app.client.know(address))

    def _knock(self, line: str | None) -> None:
        if place := self._place(line):
            offer = PairingOffer(host=place.host, port=place.port)
            self._app.push_screen(PairingScreen(self._app.client, self._app.state, offer=offer))

    def _place(self, line: str | None) -> Place | None:
        if line:
            try:
                return parse_place(line)
            except UsageError:
                self._app.note_down(_NO_PLACE)
        return None

    def _skip(self, peer: Peer) -> None:
        app = self._app
        app.set_state(state.skip_turned(app.state, peer.device_id))
        is_skipped = peer.device_id in app.state.skipped
        app.note_down(f"{peer.name} {'holds no' if is_skipped else 'may hold'} layers of what is loaded from now on.")
        app.models.find()

    async def _forget(self, peer: Peer) -> None:
        """Revoke it by the rules of trust. Raises what `tui.control.bridge.FAILURES` lists."""
        view = state.washed(await self._app.client.trust())
        mac = next((m for m in view.macs if m.device_id == peer.device_id), None)
        if why := why_not(view, mac, "revoke"):
            self._app.note_down(f"Not now: {why}.")
        elif mac is not None:
            asked = question(mac, "revoke")
            screen = ChoiceScreen(asked.title, Content(asked.effect), (asked.no, asked.yes))
            self._app.push_screen(screen, partial(self._revoke, mac))

    def _revoke(self, mac: TrustedMac, answer: int | None) -> None:
        if answer:
            self._app.command(self._revoked(mac))

    async def _revoked(self, mac: TrustedMac) -> None:
        await self._app.client.revoke(Target(mac=mac.device_id))
