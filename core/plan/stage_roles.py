"""The role of each stage in a ring, and so what its Mac can read.

A ring starts and ends at the head. `private`: the head embeds, runs the first layers, and has the output when the work
returns. `forward`: the last stage has the output and samples. `reverse`: another Mac embeds; the head runs the last
layers and has the output. `single`: the head does everything. `tensor`: every Mac embeds and runs its part of every
layer; the head has the output and gets only acknowledgements back.
"""

from __future__ import annotations

from typing import NamedTuple

from core.events import Plan, Sight
from core.plan.topology import has_ranks


class StageRole(NamedTuple):
    """Steps of a stage, in this order: embed token ids, run layers, compute logits."""

    embeds: bool
    runs: bool
    outputs: bool


def role_of(plan: Plan, index: int) -> StageRole:
    stage = plan.stages[index]
    return StageRole(stage.start == 0, stage.start < stage.stop, stage.device_id == plan.output)


def departing(plan: Plan) -> StageRole:
    own, whole = role_of(plan, 0), len(plan.stages) == 1 or has_ranks(plan)
    return StageRole(own.embeds, own.embeds, own.outputs and whole)


def arriving(plan: Plan) -> StageRole:
    own, before = role_of(plan, 0), departing(plan)
    return StageRole(False, own.runs and not before.runs, own.outputs and not before.outputs)


def sights(plan: Plan, index: int) -> tuple[Sight, ...]:
    """Kinds of data that the Mac of stage `index` sees. The head always sees token ids: it has prompt and answer."""
    own, alone = role_of(plan, index), len(plan.stages) == 1
    seen: list[Sight] = []
    if index == 0 or own.embeds or own.outputs:
        seen.append("token ids")
    if not alone:
        seen.append("activations")
    if own.outputs:
        seen.append("logits")
    return tuple(seen)
