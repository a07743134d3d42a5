"""What loading a model would do, as a value that people and programs can read."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import MaclusterError
from core.events import Peer, Plan
from core.models.anatomy import Anatomy
from core.models.layout import Layout
from core.plan.fit import draft_plan, kv_bytes_of, shortage
from core.requests import PlanPreview, PlanRequest


def preview_of(
    *,
    model: str,
    fingerprint: str,
    layout: Layout,
    peers: Sequence[Peer],
    request: PlanRequest,
    anatomy: Anatomy | None,
) -> PlanPreview:
    """The split of a model over `peers`, the head first; why there is none, or does not fit, is told in the preview."""
    plan: Plan | None = None
    problem: MaclusterError | None
    try:
        plan = draft_plan(
            model=model,
            fingerprint=fingerprint,
            layout=layout,
            peers=peers,
            context=request.context,
            kv_bits=request.kv_bits,
            rows=request.rows,
            chunk=request.chunk,
            window=request.window,
            plan_gen=0,
            anatomy=anatomy,
        )
        problem = shortage(plan, anatomy)
    except MaclusterError as error:
        problem = error
    return PlanPreview(
        plan=None if problem else plan,
        draft=plan if problem else None,
        problem=problem.problem if problem else None,
        layer_bytes=max(layout.layer_bytes),
        total_bytes=layout.total_bytes,
        kv_bytes=kv_bytes_of(layout, range(layout.layers), request.context, request.kv_bits),
        cuts=anatomy.cuts if anatomy else None,
        hop_bytes=_hop_bytes(plan, anatomy) if plan and anatomy else (),
    )


def _hop_bytes(plan: Plan, anatomy: Anatomy) -> tuple[int, ...]:
    """Every stage sends what its last layer returns to the next one, the last stage to the head."""
    if len(plan.stages) == 1 or not anatomy.boundary_bytes:
        return ()
    return tuple(anatomy.boundary_bytes[stage.stop - 1] for stage in plan.stages)
