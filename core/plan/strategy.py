"""How Macs share the work of a model, of what was asked for: each a part of every layer, each layers of its own, or one
Mac all. Decided once, on the head, before the plan is made; the plan says it and why.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from core.errors import UsageError
from core.events import ParallelismChoice, Strategy
from core.models.files.sharding import Sharding
from core.plan.plan_inputs import PlanOptions
from core.plan.topology import LONE_MAC_TOPOLOGY, TOPOLOGIES, TOPOLOGY_OF_RANKS

# every layer waits twice for the slowest link
MOST_RTT_S: Final = 0.005


class Decision(NamedTuple):
    """What is done, and why: the end of a sentence for people."""

    strategy: Strategy
    reason: str


class Circumstances(NamedTuple):
    """What else counts. `no_group`: why nothing can be added up over the Macs; `rtt_s`: the longest round trip between
    two that follow each other, None where nobody knows it; `too_large`: on whom equal parts do not fit; `slower`: by
    the forecast, with figures. A text is "" where there is nothing of the kind.
    """

    no_group: str = ""
    rtt_s: float | None = None
    too_large: str = ""
    slower: str = ""


NOTHING_ELSE: Final = Circumstances()


def decide(choice: ParallelismChoice, world: int, model: Sharding, other: Circumstances = NOTHING_ELSE) -> Decision:
    """For `world` Macs. What a person asked for by name is never exchanged for layers of its own: where it cannot be,
    the head does it all.
    """
    if world < 2:
        return Decision("single", f"no cluster peer connected (worldSize={world})")
    if choice in ("single", "pp"):
        return Decision(choice, f"operator selected --parallelism {choice}")
    missing = other.no_group or _not_shared(model, world)
    if choice == "tp":
        return Decision("single", missing) if missing else Decision("tp", "capabilities OK")
    against = missing or _too_far(other.rtt_s) or other.too_large or other.slower
    return Decision("pp", f"auto → pp: {against}") if against else Decision("tp", "auto → tp: all capabilities OK")


def check_asked(how: PlanOptions) -> None:
    """Raises UsageError for wishes that exclude each other, with what to leave out."""
    choice, topology = how.get("parallelism"), how.get("topology")
    ranks = topology is not None and TOPOLOGIES[topology].ranks
    for_ranks = ranks or choice in ("tp", "auto")
    if how.get("layers") and (for_ranks or choice == "single"):
        asked = f"--parallelism {choice}" if choice else f"the topology {topology}"
        what = f"Layers are given out, but {asked} gives none to any Mac alone."
        raise UsageError(what, "Leave out the layers, or ask for --parallelism pp.")
    if how.get("layers") and how.get("balance", "memory") != "memory":
        what = f"Layers are given out, so there is nothing to divide by --balance {how.get('balance')}."
        raise UsageError(what, "Leave out the layers, or the balance.")
    if how.get("rdma") and not for_ranks:
        what = "RDMA adds up parts of layers, of which every Mac has its own layers here."
        raise UsageError(what, "Ask for --parallelism tp or auto with it, or leave it out.")
    if choice is None or topology is None or topology in _OF[choice]:
        return
    made = " or ".join(_OF[choice]) or "the one that is chosen"
    raise UsageError(
        f"--parallelism {choice} makes the topology {made}, not {topology}.",
        "Leave out the topology." if choice != "auto" else "Leave out the topology, or ask for --parallelism pp.",
    )


_OF: Final[dict[ParallelismChoice, tuple[str, ...]]] = {
    "tp": (TOPOLOGY_OF_RANKS,),
    "single": (LONE_MAC_TOPOLOGY,),
    "pp": tuple(name for name, row in TOPOLOGIES.items() if row.several and not row.ranks),
    "auto": (),
}


def _not_shared(model: Sharding, world: int) -> str:
    """Why so many Macs cannot each have a part of every layer."""
    if not model.has_variant:
        return f"mlx-lm has no tensor-parallel variant of {model.family or 'this model'}"
    return model.indivisible(world)


def _too_far(rtt_s: float | None) -> str:
    if rtt_s is None or rtt_s <= MOST_RTT_S:
        return ""
    return f"a round trip takes {rtt_s * 1e3:.1f} ms, more than {MOST_RTT_S * 1e3:.0f} ms"
