"""Checks that the stages hold what the plan says, of the same model everywhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from core.errors import MaclusterError, ModelMismatch, Problem, ProtocolError
from core.events import Plan, Stage
from core.models.files.manifest import differing
from core.plan.stage_roles import role_of
from core.plan.topology import has_ranks
from core.worker.messages import Loaded

Held = Mapping[str, Loaded]  # what each worker loaded, by device id


class LayerFault(NamedTuple):
    """A problem, and the Mac that has another model than the plan's, or ""."""

    device_id: str
    problem: Problem


def first_fault(plan: Plan, held: Held) -> LayerFault | None:
    """The first fault in the layers that are loaded so far, if any."""
    for stage in plan.stages:
        if loaded := held.get(stage.device_id):
            if other := _other_layers(plan, stage, loaded):
                return LayerFault("", other.problem)
            if loaded.fingerprint != plan.fingerprint:
                return LayerFault(stage.device_id, _other_model(plan, stage, loaded).problem)
    fault = _not_once(plan, held) if len(held) == len(plan.stages) else None
    return LayerFault("", fault.problem) if fault else None


def _other_layers(plan: Plan, stage: Stage, loaded: Loaded) -> MaclusterError | None:
    own = role_of(plan, plan.stages.index(stage))
    wanted = (stage.start, stage.stop, own.embeds, own.outputs)
    found = (loaded.start, loaded.stop, loaded.embed, loaded.output)
    if found == wanted:
        return None
    return ProtocolError(f"{stage.peer} loaded {_holding(*found)}; the plan gives it {_holding(*wanted)}.")


def _other_model(plan: Plan, stage: Stage, loaded: Loaded) -> MaclusterError:
    return ModelMismatch(
        f"{stage.peer} loaded {plan.model} {loaded.fingerprint[:12]}, the plan is for {plan.fingerprint[:12]}: its "
        f"config.json, index or tokenizer differs.",
        f"Copy the model's directory from {plan.head.peer} to {stage.peer}, then load it again.",
    )


def other_file(plan: Plan, device_id: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> Problem | None:
    """How the files of a Mac differ from the head's, by the SHA-256 of each."""
    name = differing(ours, theirs)
    if name is None:
        return None
    head, peer = plan.head.peer, next(stage.peer for stage in plan.stages if stage.device_id == device_id)
    if name not in theirs:
        what = f"{name} of {plan.model} is missing on {peer}."
    elif name not in ours:
        what = f"{name} of {plan.model} is on {peer}, but not on {head}."
    else:
        what = f"{name} of {plan.model} on {peer} is not the same file as on {head}."
    fix = f"Copy the model's directory from {head} to {peer}, or fetch it again on both, then load it again."
    return ModelMismatch(what, fix).problem


def _not_once(plan: Plan, held: Held) -> MaclusterError | None:
    """The first layer, embedding or output head that does not have exactly one owner. Ranks of a tensor plan all have
    every layer and the embedding.
    """
    if not has_ranks(plan) and (fault := _parted(plan, held)):
        return fault
    embeds = [s.peer for s in plan.stages if held[s.device_id].embed]
    outputs = [s.peer for s in plan.stages if held[s.device_id].output]
    for part, owners, wanted in (
        ("embedding", embeds, len(plan.stages) if has_ranks(plan) else 1),
        ("output head", outputs, 1),
    ):
        if len(owners) != wanted:
            whose = " and ".join(owners) or "no Mac"
            return ProtocolError(f"The {part} of {plan.model} would be owned by {whose}.")
    return None


def _parted(plan: Plan, held: Held) -> MaclusterError | None:
    edge, before = 0, ""
    for stage in plan.owners:
        loaded = held[stage.device_id]
        if loaded.start < edge:
            twice = _layers(loaded.start, min(edge, loaded.stop))
            return ProtocolError(f"{twice} of {plan.model} would be owned twice: by {before} and by {stage.peer}.")
        if loaded.start > edge:
            return ProtocolError(f"{_layers(edge, loaded.start)} of {plan.model} would be owned by no Mac.")
        edge, before = loaded.stop, stage.peer
    if edge != plan.layers:
        return ProtocolError(f"{plan.model} has {plan.layers} layers, but the stages end with layer {edge - 1}.")
    return None


def _holding(start: int, stop: int, embed: bool, output: bool) -> str:
    parts = [_layers(start, stop).lower(), *(["the embedding"] * embed), *(["the output head"] * output)]
    return " and ".join(parts)


def _layers(start: int, stop: int) -> str:
    return f"Layer {start}" if stop == start + 1 else f"Layers {start} to {stop - 1}"
