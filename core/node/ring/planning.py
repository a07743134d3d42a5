"""From a model's name to a plan over the connected Macs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from core import errors
from core.events import Peer, Plan
from core.models.files.catalog import BrokenModel, ModelEntry, short_name
from core.models.files.layout import Layout
from core.models.known.known_models import known_models
from core.models.slicing.split_profile import SplitProfile
from core.models.text.vocabulary import ids_fingerprint
from core.node.base.context import NodeContext
from core.node.disks.holdings import Holdings
from core.node.disks.messages import HeldModel
from core.node.disks.model_inventory import ModelInventory
from core.node.peers.peer_table import PeerTable
from core.node.peers.worker_state import WorkerState
from core.node.ring.hub_model_previews import offered
from core.node.ring.prefill_mac_choice import PrefillChoice
from core.node.ring.split_profiles import SplitProfiles
from core.node.ring.stage_files import Lack, StageFiles
from core.node.ring.throughput_history import ThroughputHistory
from core.plan.assign_layers import spans_on_disks
from core.plan.balance_by_speed import is_clearly_slower
from core.plan.draft_model import DraftOnHead, budgets_beside_draft, draft_on_head, with_draft
from core.plan.forecast import MacSpeeds, PlanWork, forecast, plan_work_of
from core.plan.hop_bytes import hop_bytes
from core.plan.make_plan import make_plan, with_verification
from core.plan.mirror import with_mirror
from core.plan.plan_inputs import KnownFacts, PlanOptions, plan_options_of
from core.plan.preview import preview_of
from core.plan.stage_sizes import StageSizes
from core.plan.survival import options_after_loss
from core.requests.disks import DiskUse
from core.requests.plans import Forecast, LoadRequest, ModelChoice, PlanPreview, PlanRequest

GENERATIONS = 100

_Request = TypeVar("_Request", bound=PlanRequest)


class Planned(NamedTuple):
    """A plan that fits, with what loading it needs."""

    plan: Plan
    directory: Path
    verify: bool
    lacks: tuple[Lack, ...] = ()
    words: str = ""
    drafter: Path | None = None


class _Drafter(NamedTuple):
    """A draft model, if there is one."""

    name: str = ""
    layout: Layout | None = None
    directory: Path | None = None

    def on(self, head: Peer, context: int) -> DraftOnHead | None:
        return draft_on_head(self.name, self.layout, context, head) if self.layout else None


_NO_DRAFTER: Final = _Drafter()


class Planning:
    """Makes plans and previews; each plan has a higher generation than all before."""

    def __init__(
        self,
        node: NodeContext,
        profiles: SplitProfiles,
        inventory: ModelInventory,
        files: StageFiles,
        peers: PeerTable,
        worker: WorkerState,
        throughput: ThroughputHistory,
        gpu_reported: Callable[[], Awaitable[None]],
    ) -> None:
        """`gpu_reported` waits until this Mac's worker has said how much memory its GPU may use."""
        self._models, self._profiles, self._inventory, self._files = inventory.models, profiles, inventory, files
        self._assessment, self._simulated = node.assessment, bool(node.config.chip)
        self._peers, self._worker, self._throughput = peers, worker, throughput
        self._beside = PrefillChoice(inventory, peers, self.speeds)
        self._gpu_reported, self._plan_gen = gpu_reported, 0

    async def choices(self) -> list[ModelChoice]:
        found = await self._models.known()
        entries = [one for one in found if isinstance(one, ModelEntry)]
        profiles = await asyncio.to_thread(lambda: [self._profiles.known(entry) for entry in entries])
        here = [await self._choice(*each) for each in zip(entries, profiles, strict=True)]
        here += [_unusable(one) for one in found if isinstance(one, BrokenModel)]
        elsewhere = self._inventory.elsewhere([choice.fingerprint for choice in here])
        return [*here, *(self._absent(one) for one in elsewhere)]

    async def known(self) -> list[ModelChoice]:
        """Every known model that no linked Mac has any part of, the best fit first; the hub is not asked."""
        macs = self._peers.linked()
        held = {short_name(each.name) for each in (*self._inventory.own, *self._inventory.elsewhere(()))}
        return await asyncio.to_thread(offered, known_models(), held, macs, self.speeds(macs))

    async def preview(self, request: PlanRequest, *, parts: bool = False) -> PlanPreview:
        """Effects of loading; with `parts` also the bytes of files that each Mac would read. Raises ModelNotFound,
        BadModel, UsageError; other problems are in the preview.
        """
        macs = self._macs(request)
        entry = await self._models.find(request.model)
        try:
            request = await self._with_reader(request)
            macs = self._macs(request)
            drafter = await self._drafter(request, entry)
            preview = await self._preview(entry, request, await self._profiles.of(entry), macs, drafter)
            return await self._profiles.with_parts(entry, preview) if parts else preview
        except errors.MaclusterError as error:
            return PlanPreview(problem=error.problem)

    def disks(self) -> list[DiskUse]:
        return self._files.disks(self._worker.led) if self._worker.led else []

    async def plan(self, request: LoadRequest) -> Planned:
        request = await self._with_reader(request)
        planned = await self._plan(request, plan_options_of(request))
        await self._inventory.renew(planned.plan)
        return await self._with_lacks(planned, request)

    async def plan_on(self, request: LoadRequest, without: Collection[str], no_group: str = "") -> Planned:
        """A plan to continue `request` without the Macs `without`. Raises as `plan`. `no_group`: why the Macs could
        form no tensor group, if they couldn't. If files would have to be copied first, layers are cut as they lie on
        the disks, or only Macs with the whole model are used, where that fits. If it does not fit otherwise, the
        prefill Mac holds layers and the draft model is dropped.
        """
        gone = msgspec.structs.replace(request, without=(*request.without, *without))
        reader = (await self._with_reader(gone)).prefill
        request = msgspec.structs.replace(request, prefill=reader if reader not in without else "off")
        for more in _with_less(request):
            with suppress(errors.PlanError, errors.ModelError, errors.UsageError):
                return await self._plan_on(more, without, no_group)
        return await self._plan_on(msgspec.structs.replace(request, prefill="off", draft=None), without, no_group)

    async def _plan_on(self, request: LoadRequest, without: Collection[str], no_group: str) -> Planned:
        macs = [peer.device_id for peer in self._macs(request) if peer.device_id not in without]
        planned = await self._plan(request, options_after_loss(request, len(macs)), without, no_group)
        holdings = self._inventory.holdings(planned.plan.fingerprint)
        if holdings.missing(planned.plan) and (on_disks := await self._on_disks(request, planned, holdings, macs)):
            return on_disks
        whole = [mac for mac in macs if mac in holdings.whole]
        if holdings.missing(planned.plan) and macs[0] in whole:
            others = {*without, *(mac for mac in macs if mac not in whole)}
            with suppress(errors.PlanError):
                return await self._plan(request, options_after_loss(request, len(whole)), others, no_group)
        return await self._with_lacks(planned, request)

    async def _on_disks(
        self, request: LoadRequest, planned: Planned, holdings: Holdings, macs: Sequence[str]
    ) -> Planned | None:
        entry, plan = await self._models.find(request.model), planned.plan
        spans = spans_on_disks(plan, holdings.layers, (await self._profiles.of(entry)).cuts, macs)
        if not spans:
            return None
        members = {stage.device_id for stage in plan.stages}
        others = [peer.device_id for peer in self._macs(request) if peer.device_id not in members]
        how = plan_options_of(request)
        how |= PlanOptions(
            context=request.context,
            layers=spans,
            topology=plan.topology,
            parallelism=None,
            balance="memory",
            rdma=False,
        )
        with suppress(errors.PlanError, errors.UsageError):
            return await self._with_lacks(await self._plan(request, how, others), request)
        return None

    async def faster(self, plan: Plan, request: LoadRequest) -> Planned | None:
        """The plan of today, if the slowest stage of `plan` would be much faster in it and nothing must be copied.
        Raises as `plan`.
        """
        planned = await self.plan(request)
        entry = await self._models.find(request.model)
        speeds, layout = self.speeds(self._peers.linked()), await self._models.layout(entry)
        is_slower = is_clearly_slower(plan, planned.plan, partial(speeds.stage_s, layout))
        return planned if is_slower and not planned.lacks else None

    async def _with_lacks(self, planned: Planned, request: LoadRequest) -> Planned:
        entry = await self._models.find(request.model)
        layout = await self._models.layout(entry)
        lacks = await self._files.lacks(planned.plan, entry, layout)
        return planned._replace(lacks=lacks, words=self._files.words(lacks))

    async def forecast(self, plan: Plan) -> Forecast | None:
        entry = await self._models.find(plan.model)
        layout = await self._models.layout(entry)
        profile = await asyncio.to_thread(self._profiles.known, entry)
        return forecast(_work(plan, layout, profile), self.speeds(self._peers.linked()))

    def _macs(self, request: PlanRequest) -> list[Peer]:
        own, *others = self._peers.linked()
        if own.device_id == request.prefill:
            what = f"{own.name} leads this plan, so it can't be the prefill Mac."
            raise errors.UsageError(what, "Name another Mac with --prefill.")
        if own.device_id in request.without:
            what = f"{own.name} leads this plan, so it can't be left out."
            raise errors.UsageError(what, "Leave out other Macs, or load the model on one of them.")
        return [own, *(peer for peer in others if peer.device_id not in (*request.without, request.prefill))]

    async def _plan(
        self, request: LoadRequest, how: PlanOptions, without: Collection[str] = (), no_group: str = ""
    ) -> Planned:
        self._assessment.check()
        entry = await self._models.find(request.model)
        layout = await self._models.layout(entry)
        profile = await self._profiles.of(entry)
        await self._gpu_reported()
        drafter = await self._drafter(request, entry)
        # look again: examining a model takes seconds, and a Mac may have come or gone
        macs = [mac for mac in self._macs(request) if mac.device_id not in without]
        self._plan_gen = max(self._plan_gen, self._worker.last_gen) + GENERATIONS
        facts = self._facts(entry, layout, profile, macs, drafter)
        facts["no_group"] = no_group
        try:
            plan = await asyncio.to_thread(make_plan, plan_gen=self._plan_gen, **facts, **how)
        except errors.PlanError as error:
            raise errors.error_from(self._with_apart(error.problem)) from error
        plan = self._completed(plan, request, facts, entry, drafter)
        verify = False
        if request.verify:
            plan, verify = with_verification(plan, layout.total_bytes)
        self._assessment.check(plan)
        self._throughput.about(plan.fingerprint, layout)
        return Planned(plan, Path(entry.path), verify, drafter=drafter.directory)

    async def _drafter(self, request: PlanRequest, entry: ModelEntry) -> _Drafter:
        """The draft model of a request. Raises ModelMismatch if the two models have different tokenizers."""
        if not request.draft:
            return _NO_DRAFTER
        draft = await self._models.find(request.draft)
        ids = [await asyncio.to_thread(ids_fingerprint, Path(each.path)) for each in (entry, draft)]
        if ids[0] != ids[1]:
            what = f"{draft.name} can't draft for {entry.name}: their tokenizers differ ({ids[1][:12]}, {ids[0][:12]})."
            raise errors.ModelMismatch(what, "Choose a draft of the same family, or load the model without --draft.")
        return _Drafter(draft.name, await self._models.layout(draft), Path(draft.path))

    async def _choice(self, entry: ModelEntry, profile: SplitProfile | None) -> ModelChoice:
        preview = await self._preview(entry, PlanRequest(model=entry.path), profile, self._peers.linked())
        return self._listed(entry, preview, entry.path)

    def _absent(self, held: HeldModel) -> ModelChoice:
        problem = errors.ModelNotFound(
            f"{held.name} is not on this Mac.", "Copy it here: d in the list of models."
        ).problem
        return self._listed(held, PlanPreview(problem=problem, total_bytes=held.total_bytes))

    def _listed(self, model: ModelEntry | HeldModel, preview: PlanPreview, path: str = "") -> ModelChoice:
        plan, holdings = self._worker.led, self._inventory.holdings(model.fingerprint)
        return ModelChoice(
            name=model.name,
            path=path,
            model_type=model.model_type,
            layers=model.layers,
            total_bytes=model.total_bytes,
            quantization=model.quantization,
            context_max=model.context_max,
            fingerprint=model.fingerprint,
            held_by=holdings.whole,
            layers_on=holdings.parted,
            layers_here=model.layers_here if path and model.missing_bytes else (),
            loaded=bool(path) and plan is not None and plan.fingerprint == model.fingerprint,
            preview=preview,
        )

    async def _preview(
        self,
        entry: ModelEntry,
        request: PlanRequest,
        profile: SplitProfile | None,
        macs: Sequence[Peer],
        drafter: _Drafter = _NO_DRAFTER,
    ) -> PlanPreview:
        try:
            layout = await self._models.layout(entry)
        except errors.MaclusterError as error:
            return PlanPreview(problem=error.problem)
        facts = self._facts(entry, layout, profile, macs, drafter)
        preview = await asyncio.to_thread(preview_of, request, **facts)
        if preview.problem:
            preview = msgspec.structs.replace(preview, problem=self._with_apart(preview.problem))
        split = preview.plan or preview.draft
        if split is None:
            return preview
        if preview.plan:
            plan = self._completed(preview.plan, request, facts, entry, drafter)
            preview = msgspec.structs.replace(preview, plan=plan)
        missing = self._inventory.holdings(entry.fingerprint).missing(split)
        copied = sum(layout.layer_bytes[layer] for layers in missing.values() for layer in layers)
        try:
            self._inventory.lacking(split)
        except errors.ModelNotFound as error:
            preview = msgspec.structs.replace(preview, plan=None, draft=split, problem=preview.problem or error.problem)
        return msgspec.structs.replace(
            preview,
            missing_on=tuple(missing),
            missing_bytes=copied,
            disks=self._files.on_disks(split),
            forecast=forecast(_work(preview.plan or split, layout, profile), self.speeds(macs)),
        )

    def _facts(
        self, entry: ModelEntry, layout: Layout, profile: SplitProfile | None, macs: Sequence[Peer], drafter: _Drafter
    ) -> KnownFacts:
        speeds = self.speeds(macs)
        return KnownFacts(
            model=entry.name,
            fingerprint=entry.fingerprint,
            layout=layout,
            peers=macs,
            profile=profile,
            longest=entry.context_max,
            peers_at=lambda context: budgets_beside_draft(drafter.on(macs[0], context), macs),
            rtt=self._peers.rtt,
            stage_s=cache(partial(speeds.stage_s, layout)),  # asked for every pair of cuts
            expects=lambda plan: forecast(_work(plan, layout, profile), speeds),
            can_lose=self._inventory.holdings(entry.fingerprint).can_lose,
        )

    def _completed(
        self, plan: Plan, request: PlanRequest, facts: KnownFacts, entry: ModelEntry, drafter: _Drafter
    ) -> Plan:
        """The plan with what `request` wants besides layers, and the notes on its model."""
        layout, profile, macs = facts["layout"], facts.get("profile"), facts["peers"]
        if request.mirror:
            plan = self._mirrored(plan, profile, layout, macs)
        plan = self._beside.added(plan, request, profile, layout)
        plan = with_draft(plan, drafter.on(macs[0], plan.context))
        return msgspec.structs.replace(plan, notes=(*plan.notes, *entry.notes, *self._peers.apart()))

    def _with_apart(self, problem: errors.Problem) -> errors.Problem:
        """Macs of other versions may be what a plan lacks."""
        return msgspec.structs.replace(problem, fix=" ".join([problem.fix, *self._peers.apart()]))

    def _mirrored(self, plan: Plan, profile: SplitProfile | None, layout: Layout, macs: Sequence[Peer]) -> Plan:
        speeds = self.speeds(macs)
        told = forecast(plan_work_of(plan, layout, hop_bytes(plan, profile), layout.total_bytes), speeds)
        token_s = told.token_s if told else None
        return with_mirror(plan, profile, token_s, lambda size, *ends: speeds.hop(size, *ends).seconds)

    async def _with_reader(self, request: _Request) -> _Request:
        if request.prefill != "auto":
            return request
        entry = await self._models.find(request.model)
        layout, profile = await self._models.layout(entry), await self._profiles.of(entry)

        async def preview(other: PlanRequest) -> PlanPreview:
            return await self._preview(entry, other, profile, self._macs(other))

        return await self._beside.decided(request, entry.fingerprint, profile, layout, preview)

    def speeds(self, macs: Sequence[Peer]) -> MacSpeeds:
        chips = {mac.device_id: mac.chip for mac in macs}
        return MacSpeeds(chips, self._peers.rtt, self._throughput.curves, self._simulated)


def _work(plan: Plan, layout: Layout, profile: SplitProfile | None) -> PlanWork:
    kv_bytes = StageSizes(layout, profile, plan.context, plan.kv_bits).kv_bytes(range(layout.layers))
    return plan_work_of(plan, layout, hop_bytes(plan, profile), layout.total_bytes + kv_bytes)


def _with_less(request: LoadRequest) -> list[LoadRequest]:
    alone = msgspec.structs.replace(request, prefill="off")
    return [*([request] if request.prefill != "off" else []), *([alone] if request.draft else [])]


def _unusable(broken: BrokenModel) -> ModelChoice:
    return ModelChoice(name=broken.name, path=broken.path, preview=PlanPreview(problem=broken.problem))
