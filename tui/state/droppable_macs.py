"""Words about Macs that may drop out, for commands and screens, which can't import `core.plan`."""

from __future__ import annotations

from typing import Final

from core.events import Plan

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
