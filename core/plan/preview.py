"""Preview of loading a model."""

from __future__ import annotations

from typing import Unpack

from core.errors import MaclusterError
from core.events import Plan
from core.plan.hop_bytes import hop_bytes
from core.plan.make_plan import draft_plan, shortage
from core.plan.notes import sees
from core.plan.plan_inputs import KnownFacts, plan_options_of
from core.plan.stage_sizes import StageSizes
from core.requests.plans import PlanPreview, PlanRequest
from core.settings import DEFAULT_CONTEXT


def preview_of(request: PlanRequest, **facts: Unpack[KnownFacts]) -> PlanPreview:
    layout, profile = facts["layout"], facts.get("profile")
    plan: Plan | None = None
    problem: MaclusterError | None
    try:
        plan = draft_plan(plan_gen=0, **facts, **plan_options_of(request))
        problem = shortage(plan, profile)
    except MaclusterError as error:
        problem = error
    context = plan.context if plan else request.context or DEFAULT_CONTEXT
    return PlanPreview(
        plan=None if problem else plan,
        draft=plan if problem else None,
        problem=problem.problem if problem else None,
        layer_bytes=max(layout.layer_bytes),
        total_bytes=layout.total_bytes,
        kv_bytes=StageSizes(layout, profile, context, request.kv_bits).kv_bytes(range(layout.layers)),
        cuts=profile.cuts if profile else None,
        whole_kv=profile.whole_bits if profile else "",
        hop_bytes=hop_bytes(plan, profile) if plan else (),
        sees=tuple(sees(plan, stage.device_id) for stage in plan.stages) if plan else (),
    )
