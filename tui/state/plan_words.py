"""Words about a plan, for commands and screens: its expected speed, and the Macs that may drop out."""

from __future__ import annotations

from typing import Final

from core.events import Plan
from core.requests.plans import Forecast
from tui.state.format import duration

ADVICE: Final = "`macluster copy` puts them on another"


def survival(plan: Plan) -> str:
    """A sentence about the Macs that may drop out; "" for a plan on one Mac. For plans that fit."""
    head, *others = plan.stages
    nowhere = [stage.peer for stage in others if stage.device_id in plan.nowhere_else]
    held = [stage.peer for stage in others if stage.device_id in {*plan.indispensable} - {*plan.nowhere_else}]
    if not others:
        return ""
    rest = "the others have" if len(others) > 1 else f"{head.peer} has"
    why = [
        *([f"If {' or '.join(held)} drops out, the answer has to wait: {rest} too little memory."] if held else []),
        *(
            [f"If {' or '.join(nowhere)} drops out, the answer has to wait: no other disk has its layers ({ADVICE})."]
            if nowhere
            else []
        ),
    ]
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
