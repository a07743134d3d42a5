"""A plan from a model's bytes and the Macs' budgets; refuses what does not fit, with the number of GB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from core.errors import DoesNotFit
from core.events import Peer, Plan, Stage
from core.plan.split import split_layers
from core.settings import GB, PREFILL_CHUNK


class Bytes(Protocol):
    """What a plan needs to know of a model's layout (`core.models.layout.Layout` has it)."""

    @property
    def layers(self) -> int:
        """How many layers the model has."""

    def stage_bytes(self, start: int, stop: int, *, embed: bool, output: bool) -> int:
        """Weights of [start, stop) in bytes."""

    def kv_bytes(self, start: int, stop: int, context: int) -> int:
        """Caches of [start, stop) at `context` tokens, in bytes."""


def make_plan(
    *, model: str, fingerprint: str, layout: Bytes, peers: Sequence[Peer], context: int, plan_gen: int
) -> Plan:
    """The plan over `peers`, the head first: layers in proportion to budgets, embedding and output on the head.

    Raises the errors of `split_layers`, and DoesNotFit naming the Mac that is short and by how much.
    """
    ranges = split_layers(layout.layers, [p.budget_bytes for p in peers])
    stages = tuple(_stage(layout, peer, part, context) for peer, part in zip(peers, ranges, strict=True))
    short = [s for s in stages if s.weight_bytes + s.kv_bytes > s.budget_bytes]
    if short:
        raise _does_not_fit(model, stages, max(short, key=_missing))
    return Plan(
        plan_gen=plan_gen,
        model=model,
        fingerprint=fingerprint,
        topology="single" if len(stages) == 1 else "private",
        layers=layout.layers,
        context=context,
        chunk=PREFILL_CHUNK,
        stages=stages,
        output=stages[0].device_id,
    )


def _stage(layout: Bytes, peer: Peer, part: range, context: int) -> Stage:
    head = part.start == 0
    return Stage(
        device_id=peer.device_id,
        peer=peer.name,
        start=part.start,
        stop=part.stop,
        weight_bytes=layout.stage_bytes(part.start, part.stop, embed=head, output=head),
        kv_bytes=layout.kv_bytes(part.start, part.stop, context),
        budget_bytes=peer.budget_bytes,
    )


def _missing(stage: Stage) -> int:
    return stage.weight_bytes + stage.kv_bytes - stage.budget_bytes


def _does_not_fit(model: str, stages: Sequence[Stage], worst: Stage) -> DoesNotFit:
    need = sum(s.weight_bytes + s.kv_bytes for s in stages)
    total = sum(s.budget_bytes for s in stages)
    return DoesNotFit(
        f"{model} needs {_gb(_missing(worst))} GB more on {worst.peer} "
        f"({_gb(need)} GB needed in all, {_gb(total)} GB usable on {len(stages)} Mac{'s' * (len(stages) > 1)})."
    )


def _gb(count: int) -> str:
    """At least 0.1, so that "needs 0.0 GB more" is never said."""
    return f"{max(0.1, count / GB):.1f}"
