"""Words about a plan and its parts: layers, sizes, expected speed, and the Macs that may drop out."""

from __future__ import annotations

from typing import Final

from core.events import Plan, Stage
from core.requests.plans import Forecast, ModelChoice
from tui.state.format import WARN, Mark, bounded, duration

ADVICE: Final = "`macluster copy` puts them on another"


def survival(plan: Plan) -> str:
    """A sentence about the Macs that may drop out; "" for a plan on one Mac. For plans that fit."""
    head, *others = plan.stages
    nowhere = [stage.peer for stage in others if stage.device_id in plan.nowhere_else]
    held = [stage.peer for stage in others if stage.device_id in {*plan.indispensable} - {*plan.nowhere_else}]
    if not others:
        return ""
    rest = "the others have" if len(others) > 1 else f"{head.peer} has"
    why = [f"If {' or '.join(held)} drops out, the answer has to wait: {rest} too little memory."] if held else []
    if nowhere:
        names = " or ".join(nowhere)
        why.append(f"If {names} drops out, the answer has to wait: no other disk has its layers ({ADVICE}).")
    if why:
        return " ".join(why)
    if len(others) == 1:
        return f"{others[0].peer} can drop out; {head.peer} can take over."
    return f"Any Mac except {head.peer} can drop out; the others can take over."


def all_reduce_share(forecast: Forecast) -> str:
    """The share of the all-reduces in a token's time; "" without all-reduces."""
    if forecast.reduces_s is None:
        return ""
    return f"≈ {duration(forecast.reduces_s)} of each token's {duration(forecast.token_s)}"


def faster(forecast: Forecast) -> str:
    """How much faster than one Mac it is; "" if it isn't, which the advice says."""
    alone = forecast.alone_tokens_per_s
    if forecast.reduces_s is None or alone is None or forecast.tokens_per_s <= alone:
        return ""
    return f"Faster than this Mac alone: about {forecast.tokens_per_s:.1f} instead of {alone:.1f} tokens/s."


def weights_text(choice: ModelChoice) -> str:
    """Quantisation, and whether a model with a part for images is used without it."""
    return choice.quantization + (", text only" if choice.offer and choice.offer.text_only else "")


def context_length(tokens: int) -> str:
    tokens = round(bounded(tokens))
    return f"{tokens // 1024}k" if tokens and tokens % 1024 == 0 else str(tokens)


def layer_range(start: int, stop: int) -> str:
    """The half-open range [start, stop) for people, both ends included."""
    start, stop = round(bounded(start)), round(bounded(stop))
    if stop <= start:
        return "–"
    return str(start) if stop == start + 1 else f"{start}–{stop - 1}"


def is_of_ranks(plan: Plan) -> bool:
    return plan.parallelism is not None and plan.parallelism.strategy == "tp"


def cable_mark(plan: Plan | None) -> Mark | None:
    if plan is None or plan.parallelism is None or not is_of_ranks(plan) or plan.parallelism.group == "sealed":
        return None
    return Mark("▲", "not encrypted on the cable", WARN)


def part_of(plan: Plan, stage: Stage) -> str:
    return f"rank {plan.stages.index(stage)}" if is_of_ranks(plan) else layer_range(stage.start, stage.stop)
