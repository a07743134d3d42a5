"""Actions on other Macs: pair, add by address, look again, leave out, forget."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.app import SystemCommand

from core.address import Place, parse_place
from core.events import Peer
from core.requests.trust import Address, PairingOffer, Target
from tui.control.app_interface import AppInterface
from tui.control.messages import MacAction
from tui.control.model_controller import ModelController
from tui.state import state
from tui.state.disabled_reasons import NO_NODE
from tui.state.trust_actions import question, why_not

_WINDOW = "Press p on the other Mac, then type the address that it shows (HOST:PORT):"


class MacController:
    """Pairs, adds, leaves out and forgets Macs, and reports what isn't possible now."""

    def __init__(self, app: AppInterface, models: ModelController) -> None:
        self._app = app
        self._models = models

    def act(self, device_id: str, action: MacAction) -> None:
        app, peer = self._app, self._find(device_id)
        match action:
            case "add" if peer is not None and self._is_known(peer) and peer.state in ("seen", "lost"):
                app.in_background(self._ask_address, peer)
            case "add":
                app.in_background(self._ask_window)
            case _ if peer is None:
                app.notify("That Mac is no longer on the network.")
            case "details":
                app.open_screen("peer", device_id=device_id)
            case "trust":
                app.open_screen("trust", device_id=device_id)
            case "pair":
                self.pair("" if self._is_known(peer) else device_id)
            case "skip":
                self._skip(peer)
            case "forget":
                app.in_background(self._forget, peer)

    def pair(self, device_id: str = "") -> None:
        if not self._app.state.attached:
            self._app.notify(NO_NODE)
        else:
            self._app.open_screen("pairing", chosen=self._find(device_id))

    def offers(self) -> Iterator[SystemCommand]:
        for peer in state.strangers(self._app.state):
            yield SystemCommand(f"Pair {peer.name}", f"Mac {peer.short_id}", partial(self.pair, peer.device_id))

    async def rescan(self) -> None:
        """Look for all Macs now. Raises MaclusterError."""
        await self._app.client.rescan()
        self._app.notify("Looking for Macs by Bonjour and at every known address.")

    def _find(self, device_id: str) -> Peer | None:
        return next((p for p in self._app.state.snapshot.peers if p.device_id == device_id), None)

    def _is_known(self, peer: Peer) -> bool:
        return peer.is_self or peer not in state.strangers(self._app.state)

    async def _ask_address(self, peer: Peer) -> None:
        words = f"Address of {peer.name} (HOST:PORT):"
        if place := await self._ask_place(f"Address of {peer.name}", words, peer.address):
            await self._app.client.know(Address(device_id=peer.device_id, host=place.host, port=place.port))

    async def _ask_window(self) -> None:
        if place := await self._ask_place("Add a Mac by address", _WINDOW):
            self._app.open_screen("pairing", offer=PairingOffer(host=place.host, port=place.port))

    async def _ask_place(self, title: str, words: str, value: str = "") -> Place | None:
        line = await self._app.ask(title, words, value, parse_place)
        return parse_place(line) if line else None

    def _skip(self, peer: Peer) -> None:
        app = self._app
        app.set_state(state.skip_turned(app.state, peer.device_id))
        is_skipped = peer.device_id in app.state.skipped
        app.notify(f"{peer.name} is {'left out of' if is_skipped else 'included in'} the next load.")
        self._models.find()

    async def _forget(self, peer: Peer) -> None:
        """Revoke the Mac after asking. Raises MaclusterError."""
        view = state.cleaned(await self._app.client.trust())
        mac = next((m for m in view.macs if m.device_id == peer.device_id), None)
        if why := why_not(view, mac, "revoke"):
            self._app.notify(why)
        elif mac is not None:
            asked = question(view, mac, "revoke")
            if await self._app.choose(asked.title, asked.effect, (asked.no, asked.yes)):
                await self._app.client.revoke(Target(mac=mac.device_id))
