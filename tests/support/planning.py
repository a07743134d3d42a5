"""A layout of round numbers, and plans of it."""

from __future__ import annotations

from typing import Any, Final

from core.events import Peer, Plan, Stage
from core.models.files.cache_size import CacheSize
from core.models.files.layout import Layout
from core.models.files.sharding import Sharding
from core.models.slicing.split_profile import SplitProfile
from core.plan.make_plan import make_plan
from core.settings import GB

# layers of 1 GB, embedding 2 GB, output 3 GB, 0.1 GB of KV a layer at any context; ranks share 8 heads, and each has
# 1 GB of unshared layers
FLAT: Final = Layout(
    layers=10,
    layer_bytes=(GB,) * 10,
    token_bytes=(GB,) * 10,
    embed_bytes=2 * GB,
    output_bytes=3 * GB,
    tied=False,
    caches=(CacheSize(fixed_bytes=GB // 10),) * 10,
    sharding=Sharding(family="llama", has_variant=True, heads=8, kv_heads=4, whole_bytes=GB, reduces=20),
)


def peer(name: str, gigabytes: int) -> Peer:
    return Peer(device_id=name * 3, name=name, budget_bytes=gigabytes * GB)


def profile(*cuts: int, layers: int = 10, **more: Any) -> SplitProfile:
    return SplitProfile(layers=layers, cuts=cuts, **{"caches": FLAT.caches[:1] * layers} | more)


def planned(macs: list[Peer], found: SplitProfile, **how: Any) -> Plan:
    wish: Any = {"model": "m", "fingerprint": "f", "layout": FLAT, "context": 64, "plan_gen": 1}
    return make_plan(**wish, peers=macs, profile=found, **how)


def part(name: str, start: int, stop: int) -> Stage:
    size = 100 * (stop - start)
    return Stage(
        device_id=name.upper(), peer=name, start=start, stop=stop, weight_bytes=size, kv_bytes=size, budget_bytes=2000
    )


REVERSE = Plan(
    plan_gen=0,
    model="m",
    fingerprint="f",
    topology="reverse",
    layers=20,
    context=9,
    chunk=9,
    stages=(part("head", 14, 20), part("b", 0, 9), part("c", 9, 14)),
    output="HEAD",
)
