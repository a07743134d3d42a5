"""What a person can ask of this node, whichever way they ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from core.errors import MaclusterError, TrustError, UsageError
from core.events import Plan
from core.models.anatomy import Anatomy
from core.models.catalog import Broken, ModelEntry
from core.node.anatomies import Anatomies
from core.node.answers import Answers
from core.node.cluster import Cluster
from core.node.discovery import Sighting
from core.node.introductions import Introductions
from core.node.models import Models
from core.node.peers import Peers
from core.node.sightings import place_given
from core.plan.fit import how_of, make_plan, with_verification
from core.plan.preview import preview_of
from core.requests import (
    Address,
    ChatRequest,
    LoadRequest,
    ModelChoice,
    PairingOffer,
    PairingWindow,
    PlanPreview,
    PlanRequest,
    PreviewRequest,
    RequestAccepted,
)
from core.settings import DEFAULT_CONTEXT
from core.text import clean_name
from core.trust.identity import parse_text_id


class Commands:
    """Each method is one command; it raises a MaclusterError with the reason and the cure."""

    def __init__(
        self,
        models: Models,
        anatomies: Anatomies,
        peers: Peers,
        cluster: Cluster,
        answers: Answers,
        introductions: Introductions,
        know: Callable[[Sighting], None],
        check_trust: Callable[[Plan | None], None],
    ) -> None:
        self._models = models
        self._anatomies = anatomies
        self._peers = peers
        self._cluster = cluster
        self._answers = answers
        self._introductions = introductions
        self._know = know
        self._check_trust = check_trust
        self._plan_gen = 0

    async def models(self) -> list[ModelChoice]:
        """Every model on this Mac with how it would fit, as far as is known without examining it, or why it cannot."""
        found = await self._models.survey()
        return [_unusable(one) if isinstance(one, Broken) else await self._choice(one) for one in found]

    async def preview(self, request: PreviewRequest) -> PlanPreview:
        """What loading would do. Raises ModelNotFound, BadModel; what does not fit is told in the preview."""
        entry = await self._models.find(request.model)
        try:
            preview = await self._preview(entry, request, await self._anatomies.of(entry))
            return await self._anatomies.with_parts(entry, preview) if request.parts else preview
        except MaclusterError as error:
            return PlanPreview(problem=error.problem)

    async def load(self, request: LoadRequest) -> PlanPreview:
        """Begin to load a model over the paired Macs that are linked.

        Raises NotPaired, RosterFork, PlanError, ModelError, Busy.
        """
        self._check_trust(None)
        entry = await self._models.find(request.model)
        layout = await self._models.layout(entry)
        anatomy = await self._anatomies.of(entry)
        self._plan_gen += 100
        plan = await asyncio.to_thread(
            make_plan,
            model=entry.name,
            fingerprint=entry.fingerprint,
            layout=layout,
            peers=self._peers.linked(),
            plan_gen=self._plan_gen,
            anatomy=anatomy,
            **how_of(request),
        )
        verify = False
        if request.verify:
            plan, verify = with_verification(plan, layout.total_bytes)
        directory = Path(entry.path)
        self._check_trust(plan)
        await self._cluster.load(plan, directory, verify=verify)
        try:
            await self._answers.use(directory)
        except MaclusterError:
            await self._cluster.unload("Its tokenizer cannot be read.")
            raise
        return await self._preview(entry, request, anatomy)

    async def unload(self) -> None:
        """Free the memory on every Mac; a load that is running is cancelled."""
        await self._cluster.unload("The person unloaded it.")

    async def ask(self, request: ChatRequest) -> RequestAccepted:
        """Start an answer."""
        return await self._answers.ask(request)

    async def attend(self, request_id: str, is_gone: Callable[[], bool]) -> None:
        """Wait for the end of an answer; cancel it where whoever asked is gone before that."""
        await self._answers.attend(request_id, is_gone)

    def cancel(self, request_id: str) -> None:
        """Stop an answer."""
        self._answers.cancel(request_id)

    def know(self, address: Address) -> None:
        """A Mac's address, given by hand. Raises UsageError for a device id that is none."""
        name = clean_name(address.device_id[:8])
        try:
            parse_text_id(address.device_id)
        except TrustError:
            name = None
        if name is None or self._peers.is_own(address.device_id):
            raise UsageError(
                f"{address.device_id!r} is no other Mac's device id.", "`macluster status --json` shows it on that Mac."
            )
        self._know(Sighting(device_id=address.device_id, name=name, host=address.host, port=address.port))

    async def open_pairing(self) -> PairingWindow:
        """Open this Mac's pairing window."""
        return PairingWindow(port=await self._introductions.open())

    def pair_with(self, device_id: str) -> None:
        """Begin to pair with a Mac that was seen. Raises UsageError for any other."""
        peer = self._peers.find(device_id)
        if peer is None or peer.is_self:
            raise UsageError(
                f"No other Mac with the device id {device_id!r} was seen.",
                "`macluster peers` lists those that were; where Bonjour is off, use `macluster pair HOST:PORT`.",
            )
        self._introductions.pair_with(device_id, peer.name)

    async def offer_pairing(self, offer: PairingOffer) -> None:
        """Begin to pair with the Mac whose window is open there. Raises UsageError for a place that is none."""
        await self._introductions.offer(place_given(offer.host, offer.port))

    async def stop_pairing(self) -> None:
        """Close this Mac's window and break off a pairing."""
        await self._introductions.stop()

    def type_digits(self, digits: str) -> None:
        """The digits read on the other Mac."""
        self._introductions.type(digits)

    async def _choice(self, entry: ModelEntry) -> ModelChoice:
        plan = self._cluster.plan
        return ModelChoice(
            name=entry.name,
            path=entry.path,
            model_type=entry.model_type,
            layers=entry.layers,
            total_bytes=entry.total_bytes,
            quantization=entry.quantization,
            context_max=entry.context_max,
            loaded=plan is not None and plan.fingerprint == entry.fingerprint,
            preview=await self._preview(
                entry,
                PlanRequest(model=entry.path, context=min(DEFAULT_CONTEXT, entry.context_max)),
                await asyncio.to_thread(self._anatomies.known, entry),
            ),
        )

    async def _preview(self, entry: ModelEntry, request: PlanRequest, anatomy: Anatomy | None) -> PlanPreview:
        try:
            layout = await self._models.layout(entry)
        except MaclusterError as error:
            return PlanPreview(problem=error.problem)
        return await asyncio.to_thread(
            preview_of,
            model=entry.name,
            fingerprint=entry.fingerprint,
            layout=layout,
            peers=self._peers.linked(),
            request=request,
            anatomy=anatomy,
        )


def _unusable(broken: Broken) -> ModelChoice:
    return ModelChoice(
        name=broken.name,
        path=broken.path,
        model_type="",
        layers=0,
        total_bytes=0,
        quantization="",
        context_max=0,
        preview=PlanPreview(problem=broken.problem),
    )
