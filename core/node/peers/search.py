"""Look for other Macs by Bonjour and at addresses given by the user, and dial paired ones."""

from __future__ import annotations

import errno
from contextlib import suppress

from core.address import checked_place
from core.errors import MaclusterError, NodeError, UsageError
from core.node.base.context import NodeContext
from core.node.peers.addresses import AddressBook
from core.node.peers.discovery import AdvertisementEnded, Discovery, Sighting
from core.node.peers.mesh import Mesh
from core.node.peers.networks import NetworksChanged
from core.node.peers.peer_table import PeerTable
from core.requests.trust import Address
from core.trust.identity import is_text_id


class Search:
    """Finds Macs by Bonjour and at known addresses."""

    def __init__(
        self, node: NodeContext, discovery: Discovery, book: AddressBook, mesh: Mesh, peers: PeerTable
    ) -> None:
        self._discovery, self._book, self._mesh, self._peers = discovery, book, mesh, peers
        self._journal, self._tasks, self._multicast = node.journal, node.tasks, node.config.multicast
        signals = node.signals
        signals.on(Sighting, self._sighted)
        signals.on(AdvertisementEnded, lambda ended: peers.vanished(ended.device_id))
        signals.on(NetworksChanged, lambda _: self._tasks.spawn("Following the networks", self._follow()))

    async def advertise(self) -> None:
        try:
            if self._multicast:
                await self._look()
        except NodeError as error:
            self._journal.warn(str(error))

    async def look_again(self) -> None:
        """Try all known addresses and look by Bonjour. Raises UsageError if it is off, NodeError if not available."""
        self._mesh.dialling.roster_changed()
        if not self._multicast:
            raise UsageError("This node runs without Bonjour.", "Known addresses are tried; add others by hand.")
        await self._look()

    async def _look(self) -> None:
        try:
            await self._discovery.look(self._mesh.port)
        except OSError as error:
            raise NodeError(f"Bonjour is not available here ({_why(error)}).", "Add Macs by address.") from error

    def add(self, address: Address) -> None:
        """Add a Mac's address given by the user. Raises UsageError for an invalid device id or host."""
        device_id = address.device_id
        if not is_text_id(device_id) or self._peers.is_own(device_id):
            raise UsageError(
                f"{device_id!r} is not the device id of another Mac.", "`macluster status --json` shows it on that Mac."
            )
        place = checked_place(address.host, address.port)
        if self._book.is_barred(place.host):
            raise UsageError(
                f"No other Mac can be at {place.host}: this Mac has it, or a network inside of this Mac.",
                "Give an address that both Macs reach.",
            )
        self._book.by_hand(device_id, place)
        self._peers.refresh(device_id)
        self._mesh.dialling.reach(device_id)

    def _sighted(self, sighting: Sighting) -> None:
        if self._peers.sighted(sighting):
            who = f"{sighting.name} ({sighting.device_id[:8]})"
            at = sighting.hosts[0]
            self._journal.warn(f"{who} is advertised at {at} and elsewhere: its key decides which it is.")
        self._mesh.dialling.reach(sighting.device_id)

    async def _follow(self) -> None:
        """Look again for Macs that are not linked, on the new networks."""
        with suppress(MaclusterError):  # without Bonjour only known addresses remain; `advertise` has logged it
            await self.look_again()


def _why(error: OSError) -> str:
    """On a Mac, UDP port 5353 belongs to one account at a time, besides the system's own Bonjour."""
    return "another account of this Mac uses it" if error.errno == errno.EADDRINUSE else str(error)
