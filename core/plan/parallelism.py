"""Gather what decides how the Macs share the work, and choose the topology."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Unpack

import msgspec

from core.errors import PlanError
from core.events import GroupKind, Parallelism, Peer, Plan, Topology
from core.plan.plan_inputs import PlanInputs
from core.plan.strategy import Circumstances, check_asked, decide
from core.plan.topology import LONE_MAC_TOPOLOGY, TOPOLOGIES, TOPOLOGY_OF_RANKS

Drafts = Callable[[Topology | None], Plan]
# reason why a plan doesn't fit; "" if it does
Lacks = Callable[[Plan], str]


class TopologyChoice(NamedTuple):
    """The topology (None: the default one), and how it was decided."""

    topology: Topology | None
    parallelism: Parallelism | None


def choose_topology(draft: Drafts, lacks: Lacks, **inputs: Unpack[PlanInputs]) -> TopologyChoice:
    """Choose the topology. `draft` lays the model out, fitting or not. Raises UsageError; PlanError if impossible."""
    check_asked(inputs)
    asked, choice = inputs.get("topology"), inputs.get("parallelism")
    by_name = choice is None and asked is not None and TOPOLOGIES[asked].ranks
    if choice is None and not by_name:
        return TopologyChoice(asked, None)
    model, peers = inputs["layout"].sharding, inputs["peers"]
    other = Circumstances(no_group=inputs.get("no_group", ""))
    group: GroupKind = "rdma" if inputs.get("rdma") else "sealed"
    strategy, reason = decide(choice or "tp", len(peers), model, other)
    if choice == "auto" and strategy == "tp":
        made = Parallelism(choice=choice, strategy=strategy, reason=reason, group=group)
        ranks = msgspec.structs.replace(draft(TOPOLOGY_OF_RANKS), parallelism=made)
        other = other._replace(rtt_s=_longest_rtt(inputs), too_large=lacks(ranks), slower=_slower(ranks, draft, inputs))
        strategy, reason = decide(choice, len(peers), model, other)
    if by_name and strategy != "tp":
        raise _cannot_be(inputs["model"], reason, peers)
    topologies: dict[str, Topology | None] = {"tp": TOPOLOGY_OF_RANKS, "single": LONE_MAC_TOPOLOGY, "pp": asked}
    made = Parallelism(
        choice=choice or "tp", strategy=strategy, reason=reason, group=group if strategy == "tp" else "sealed"
    )
    return TopologyChoice(topologies[strategy], made)


def _longest_rtt(inputs: PlanInputs) -> float | None:
    macs, rtt = [peer.device_id for peer in inputs["peers"]], inputs.get("rtt")
    if rtt is None or inputs.get("rdma"):  # the control link's round trip is not that of RDMA
        return None
    known = [rtt(*ends) for ends in pairwise([*macs, macs[0]])]
    return max((found for found in known if found is not None), default=None)


def _slower(ranks: Plan, draft: Drafts, inputs: PlanInputs) -> str:
    """A comparison with figures if splitting by layers is expected to be faster, else ""."""
    if (expects := inputs.get("expects")) is None:
        return ""
    try:
        one, other = expects(ranks), expects(draft(None))
    except PlanError:  # only ranks are possible
        return ""
    if one is None or other is None or one.tokens_per_s >= other.tokens_per_s:
        return ""
    return (
        f"splitting every layer would give about {one.tokens_per_s:.1f} tokens/s, "
        f"splitting by layers {other.tokens_per_s:.1f}"
    )


def _cannot_be(model: str, reason: str, peers: Sequence[Peer]) -> PlanError:
    more = "Leave out some of the Macs, or choose another topology." if len(peers) > 2 else "Choose another topology."
    fix = more if len(peers) > 1 else f"Pair another Mac, or choose the topology {LONE_MAC_TOPOLOGY}."
    return PlanError(f"{model} cannot run in the topology {TOPOLOGY_OF_RANKS}: {reason}.", fix)
