"""How the known models of the hub would fit the linked Macs, without asking the hub."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from core.events import Peer, Plan
from core.models.files.catalog import short_name
from core.models.known.known_models import KnownModel, KnownModels
from core.plan.forecast import MacSpeeds, forecast, plan_work_of
from core.plan.hop_bytes import hop_bytes
from core.plan.preview import preview_of
from core.requests.plans import Forecast, HubOffer, ModelChoice, PlanPreview, PlanRequest


def offered(known: KnownModels, held: Collection[str], macs: Sequence[Peer], speeds: MacSpeeds) -> list[ModelChoice]:
    """The models that are known and not `held` (names without owners), best fit first; `macs` starts with the head."""
    lacking = [model for model in known.models if short_name(model.repo) not in held]
    return best_first([_choice(model, known.made_on, macs, speeds) for model in lacking])


def _choice(model: KnownModel, listed_on: str, macs: Sequence[Peer], speeds: MacSpeeds) -> ModelChoice:
    offer = HubOffer(
        repo=model.repo,
        revision=model.revision or "main",
        licence=model.licence,
        listed_on=listed_on,
        text_only=model.text_only,
    )
    return ModelChoice(
        name=model.repo,
        path="",
        model_type=model.model_type,
        layers=model.layers,
        total_bytes=model.total_bytes,
        quantization=model.quantization,
        context_max=model.context_max,
        offer=offer,
        preview=_preview(model, macs, speeds),
    )


def _preview(model: KnownModel, macs: Sequence[Peer], speeds: MacSpeeds) -> PlanPreview:
    layout, hidden = model.layout, model.sharding.hidden_bytes
    request = PlanRequest(model=model.repo)

    def expected(plan: Plan) -> Forecast | None:
        whole_bytes = layout.total_bytes + sum(cache.bytes_for(plan.context) for cache in layout.caches)
        sent = () if len(plan.stages) == 1 else hop_bytes(plan, None) or (hidden,) * len(plan.stages)
        return forecast(plan_work_of(plan, layout, sent, whole_bytes), speeds)

    preview = preview_of(
        request,
        model=model.repo,
        fingerprint="",
        layout=layout,
        peers=macs,
        longest=model.context_max,
        rtt=speeds.rtt,
        expects=expected,
    )
    split = preview.plan or preview.draft
    return msgspec.structs.replace(preview, forecast=expected(split)) if split else preview


def best_first(choices: Sequence[ModelChoice]) -> list[ModelChoice]:
    """Models that fit, the largest first; then the others, the one that lacks least first."""
    return sorted(
        choices, key=lambda c: (c.preview.plan is None, c.total_bytes * (1 if c.preview.plan is None else -1))
    )
