"""Which Macs a plan may lose, in words: for the commands and the screens, which know no `core.plan`."""

from __future__ import annotations

from typing import Final

from core.events import Plan

ADVICE: Final = "`macluster copy` puts them on another"


def survival(plan: Plan) -> str:
    """Which Macs may be lost, as a sentence; "" for a plan on one Mac. Meant for a plan that fits."""
    head, *others = plan.stages
    nowhere = [stage.peer for stage in others if stage.device_id in plan.nowhere_else]
    held = [stage.peer for stage in others if stage.device_id in {*plan.indispensable} - {*plan.nowhere_else}]
    if not others:
        return ""
    rest, alone = ("the others", "") if len(others) > 1 else (head.peer, " alone")
    why = [
        *([f"It cannot lose {' or '.join(held)}: {rest} could not hold it{alone}."] if held else []),
        *([f"It cannot lose {' or '.join(nowhere)}: no other disk has its layers ({ADVICE})."] if nowhere else []),
    ]
    if why:
        return " ".join(why)
    lost = f"any one Mac but {head.peer}" if len(others) > 1 else others[0].peer
    return f"It can lose {lost}: {rest} can hold it{alone}."
