"""From a model's name to a plan over the Macs that are linked now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from core.errors import MaclusterError
from core.events import Plan
from core.models.anatomy import Anatomy
from core.models.catalog import Broken, ModelEntry
from core.node.anatomies import Anatomies
from core.node.cluster import Cluster
from core.node.models import Models
from core.node.peers import Peers
from core.plan.fit import make_plan, with_verification
from core.plan.preview import preview_of
from core.plan.survival import how_to_go_on
from core.plan.wish import How, how_of
from core.requests import LoadRequest, ModelChoice, PlanPreview, PlanRequest
from core.settings import DEFAULT_CONTEXT

GENERATIONS = 100


class Planned(NamedTuple):
    """A plan that fits, where its model lies on this Mac, and whether its logits are to be compared."""

    plan: Plan
    directory: Path
    verify: bool


class Planning:
    """Plans, and what they would be. Every plan has a generation above all that an earlier one came to."""

    def __init__(
        self,
        models: Models,
        anatomies: Anatomies,
        peers: Peers,
        cluster: Cluster,
        check_trust: Callable[[Plan | None], None],
    ) -> None:
        self._models, self._anatomies, self._peers, self._cluster = models, anatomies, peers, cluster
        self._check_trust = check_trust
        self._plan_gen = 0

    async def choices(self) -> list[ModelChoice]:
        """Every model on this Mac with how it would fit, as far as is known without examining it, or why it cannot."""
        found = await self._models.survey()
        return [_unusable(one) if isinstance(one, Broken) else await self._choice(one) for one in found]

    async def preview(self, request: PlanRequest, *, parts: bool = False) -> PlanPreview:
        """What loading would do; with `parts` also which bytes of which files every Mac would read. Raises
        ModelNotFound, BadModel; what does not fit is told in the preview.
        """
        entry = await self._models.find(request.model)
        try:
            preview = await self._preview(entry, request, await self._anatomies.of(entry))
            return await self._anatomies.with_parts(entry, preview) if parts else preview
        except MaclusterError as error:
            return PlanPreview(problem=error.problem)

    async def plan(self, request: LoadRequest) -> Planned:
        """The plan that a person asks for. Raises NotPaired, RosterFork, PlanError, ModelError."""
        return await self._plan(request, how_of(request), without=())

    async def plan_on(self, request: LoadRequest, without: Collection[str]) -> Planned:
        """A plan that goes on with what was asked for on the Macs that are left, but for the device ids `without`.
        Raises as `plan`.
        """
        macs = len([peer for peer in self._peers.linked() if peer.device_id not in without])
        return await self._plan(request, how_to_go_on(request, macs), without)

    def check(self, plan: Plan) -> None:
        """Raises NotPaired or RosterFork where a Mac of `plan` must see no prompt."""
        self._check_trust(plan)

    async def _plan(self, request: LoadRequest, how: How, without: Collection[str]) -> Planned:
        self._check_trust(None)
        entry = await self._models.find(request.model)
        layout = await self._models.layout(entry)
        anatomy = await self._anatomies.of(entry)
        self._plan_gen = max(self._plan_gen, self._cluster.last_gen) + GENERATIONS
        plan = await asyncio.to_thread(
            make_plan,
            model=entry.name,
            fingerprint=entry.fingerprint,
            layout=layout,
            peers=[peer for peer in self._peers.linked() if peer.device_id not in without],
            plan_gen=self._plan_gen,
            anatomy=anatomy,
            **how,
        )
        verify = False
        if request.verify:
            plan, verify = with_verification(plan, layout.total_bytes)
        self._check_trust(plan)
        return Planned(plan, Path(entry.path), verify)

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
