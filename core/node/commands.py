"""What a person can ask of this node, whichever way they ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from core.address import checked_place
from core.errors import UsageError
from core.node.answers.answers import Answers
from core.node.pairing.pairing_flow import PairingFlow
from core.node.peers.check import Check
from core.node.peers.peer_table import PeerTable
from core.node.peers.search import Search
from core.node.peers.speed_test import SpeedTests
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.ring.planning import Planning
from core.requests import (
    Address,
    AnswerId,
    ChatRequest,
    Done,
    Finding,
    LoadRequest,
    ModelChoice,
    PairingOffer,
    PairingWindow,
    PlanPreview,
    PreviewRequest,
    RecoveryOrder,
    RequestAccepted,
    SpeedRequest,
    SpeedResult,
    UnfinishedAnswer,
)


class Commands:
    """Each method is one command; it raises a MaclusterError with the reason and the cure."""

    def __init__(
        self,
        planning: Planning,
        recovery: RecoveryDriver,
        peers: PeerTable,
        answers: Answers,
        pairing: PairingFlow,
        speed: SpeedTests,
        search: Search,
        check: Check,
    ) -> None:
        self._planning = planning
        self._recovery = recovery
        self._peers = peers
        self._answers = answers
        self._pairing = pairing
        self._speed = speed
        self._search = search
        self._check = check

    async def models(self) -> list[ModelChoice]:
        """Every model on this Mac with how it would fit, as far as is known without examining it, or why it cannot."""
        return await self._planning.choices()

    async def preview(self, request: PreviewRequest) -> PlanPreview:
        """What loading would do. Raises ModelNotFound, BadModel; what does not fit is told in the preview."""
        return await self._planning.preview(request, parts=request.parts)

    async def load(self, request: LoadRequest) -> PlanPreview:
        """Begin to load a model over the paired Macs that are linked.

        Raises NotPaired, RosterFork, PlanError, ModelError, Busy.
        """
        await self._recovery.load(request)
        return await self._planning.preview(request)

    async def unload(self) -> None:
        """Free the memory on every Mac; a load that is running is cancelled."""
        await self._recovery.unload()

    async def recover(self, order: RecoveryOrder) -> Done:
        """What the person wants of a plan that lost a Mac. Raises UsageError where that is not to be chosen now."""
        self._recovery.choose(order.choice)
        return Done()

    async def ask(self, request: ChatRequest) -> RequestAccepted:
        """Start an answer."""
        return await self._answers.ask(request)

    async def unfinished(self) -> list[UnfinishedAnswer]:
        """Answers that can be continued, the newest first."""
        return await self._answers.unfinished()

    async def go_on(self, wanted: AnswerId) -> RequestAccepted:
        """Continue one. Raises UsageError where there is none, NotLoaded where its model is not."""
        return await self._answers.go_on(wanted)

    async def attend(self, request_id: str, is_gone: Callable[[], bool]) -> None:
        """Wait for the end of an answer; cancel it where whoever asked is gone before that."""
        await self._answers.attend(request_id, is_gone)

    def cancel(self, request_id: str) -> None:
        """Stop an answer."""
        self._answers.cancel(request_id)

    async def test_speed(self, request: SpeedRequest) -> SpeedResult:
        """Measure a hop, also one between two other Macs. Raises UsageError, NotPaired, LinkError, Busy."""
        return await self._speed.test(request)

    async def stop_speed_test(self) -> Done:
        """End it, if one runs."""
        return await self._speed.stop()

    def know(self, address: Address) -> None:
        """A Mac's address, given by hand. Raises UsageError for a device id that is none."""
        self._search.add(address)

    async def rescan(self) -> None:
        """Look for all Macs now. Raises UsageError where this node runs without Bonjour, NodeError where that cannot be
        had; whoever is known by address is looked for nevertheless.
        """
        await self._search.look_again()

    def check(self) -> AsyncIterator[Finding]:
        """What is found about this node, its network and its machine, each as soon as it is."""
        return self._check.findings()

    async def open_pairing(self) -> PairingWindow:
        """Open this Mac's pairing window."""
        return PairingWindow(port=await self._pairing.open())

    def pair_with(self, device_id: str) -> None:
        """Begin to pair with a Mac that was seen. Raises UsageError for any other."""
        peer = self._peers.find(device_id)
        if peer is None or peer.is_self:
            raise UsageError(
                f"No other Mac with the device id {device_id!r} was seen.",
                "`macluster peers` lists those that were; where Bonjour is off, use `macluster pair HOST:PORT`.",
            )
        self._pairing.pair_with(device_id, peer.name)

    async def offer_pairing(self, offer: PairingOffer) -> None:
        """Begin to pair with the Mac whose window is open there. Raises UsageError for a place that is none."""
        await self._pairing.offer(checked_place(offer.host, offer.port))

    async def stop_pairing(self) -> None:
        """Close this Mac's window and break off a pairing."""
        await self._pairing.stop()

    def type_digits(self, digits: str) -> None:
        """The digits read on the other Mac."""
        self._pairing.type(digits)
