"""Plans of Macs that do not run, and the reports of their workers."""

from __future__ import annotations

from typing import Any

import msgspec

from core.errors import LinkLost
from core.events import Parallelism, Plan, Stage
from core.worker.messages import Loaded

PROOF = "Proved with 24 tokens in 0.2 s."
FILES = {"config.json": "c" * 64, "model.safetensors": "a" * 64}
PROBLEM = LinkLost("The cable is out.", "Plug it in.").problem
GEN = 100


def mac_id(number: int) -> str:
    return "abcdefgh"[number] * 25 + "a"  # the last character of a device id carries three bits


def plan_of(count: int, plan_gen: int = GEN) -> Plan:
    stages = tuple(
        Stage(
            device_id=mac_id(n),
            peer=f"mac{n}",
            start=2 * n,
            stop=2 * n + 2,
            weight_bytes=1000 + n,
            kv_bytes=10,
            budget_bytes=5000,
        )
        for n in range(count)
    )
    return Plan(
        plan_gen=plan_gen,
        model="toy",
        fingerprint="f" * 64,
        topology="single" if count == 1 else "private",
        layers=2 * count,
        context=64,
        chunk=8,
        stages=stages,
        output=mac_id(0),
    )


def as_ranks(plan: Plan) -> Plan:
    """The same Macs as ranks: each has a part of every layer."""
    change = msgspec.structs.replace
    how = Parallelism(choice="tp", strategy="tp", reason="your choice")
    stages = tuple(change(stage, start=0, stop=plan.layers) for stage in plan.stages)
    return change(plan, stages=stages, output=plan.head.device_id, topology="tensor", parallelism=how)


def held(number: int, **changes: Any) -> Loaded:
    """`Loaded` of the worker of stage `number` of `plan_of`, without faults."""
    told = Loaded(
        plan_gen=GEN,
        weight_bytes=1000 + number,
        seconds=0.5,
        start=2 * number,
        stop=2 * number + 2,
        embed=number == 0,
        output=number == 0,
        fingerprint="f" * 64,
    )
    return msgspec.structs.replace(told, **changes)
