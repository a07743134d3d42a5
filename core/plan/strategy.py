"""Decide on the head how Macs share a model: part of every layer each (tp), own layers (pp), or one Mac (single)."""

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
    """The strategy, and why, as the end of a sentence."""

    strategy: Strategy
    reason: str


class Circumstances(NamedTuple):
    """Facts besides the model. A text is "" if nothing is wrong."""

    no_group: str = ""  # why these Macs can't reduce
    rtt_s: float | None = None  # longest round trip between neighbours; None: unknown
    too_large: str = ""  # on which Mac equal parts don't fit
    slower: str = ""  # comparison of the forecasts, with figures


NOTHING_ELSE: Final = Circumstances()


def decide(choice: ParallelismChoice, world: int, model: Sharding, other: Circumstances = NOTHING_ELSE) -> Decision:
    """Decide for `world` Macs. A requested tp that is impossible becomes single, never pp."""
    if world < 2:
        return Decision("single", "no other Mac is linked")
    if choice in ("single", "pp"):
        return Decision(choice, "your choice")
    missing = other.no_group or _not_shared(model, world)
    if choice == "tp":
        return Decision("single", missing) if missing else Decision("tp", "your choice")
    against = missing or _too_far(other.rtt_s) or other.too_large or other.slower
    return Decision("pp", against) if against else Decision("tp", "chosen automatically")


def check_asked(how: PlanOptions) -> None:
    """Raises UsageError for contradictory options."""
    choice, topology = how.get("parallelism"), how.get("topology")
    ranks = topology is not None and TOPOLOGIES[topology].ranks
    for_ranks = ranks or choice in ("tp", "auto")
    if how.get("layers") and (for_ranks or choice == "single"):
        asked = f"parallelism {choice}" if choice else f"the topology {topology}"
        what = f"Layers are assigned by hand, but {asked} gives no Mac layers of its own."
        raise UsageError(what, "Leave out the layers, or split by layers (pp).")
    if how.get("layers") and how.get("balance", "memory") != "memory":
        what = f"Layers are assigned by hand, so balance {how.get('balance')} has nothing to divide."
        raise UsageError(what, "Leave out the layers, or the balance.")
    if how.get("rdma") and not for_ranks:
        what = "RDMA is only for splitting every layer (tp)."
        raise UsageError(what, "Choose parallelism tp or auto, or leave RDMA out.")
    if choice is None or topology is None or topology in _OF[choice]:
        return
    made = " or ".join(_OF[choice]) or "the one that is chosen"
    raise UsageError(
        f"Parallelism {choice} makes the topology {made}, not {topology}.",
        "Leave out the topology." if choice != "auto" else "Leave out the topology, or split by layers (pp).",
    )


_OF: Final[dict[ParallelismChoice, tuple[str, ...]]] = {
    "tp": (TOPOLOGY_OF_RANKS,),
    "single": (LONE_MAC_TOPOLOGY,),
    "pp": tuple(name for name, row in TOPOLOGIES.items() if row.several and not row.ranks),
    "auto": (),
}


def _not_shared(model: Sharding, world: int) -> str:
    if not model.has_variant:
        return f"mlx-lm can't split every layer of {model.family or 'this model'}"
    return model.indivisible(world)


def _too_far(rtt_s: float | None) -> str:
    if rtt_s is None or rtt_s <= MOST_RTT_S:
        return ""
    return f"a round trip takes {rtt_s * 1e3:.1f} ms, more than {MOST_RTT_S * 1e3:.0f} ms"
