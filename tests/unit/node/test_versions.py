from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.errors import NodeError, NotUnderstood
from core.node.base.node_message import in_pieces, to_frame
from core.node.peers.messages import Greeting
from core.node.peers.versions import own_greeting, why_apart, wire_between
from core.node.peers.worker_state import WorkerState
from core.node.ring.messages import LinkUp, PrepareStage
from core.node.ring.plan_member import check_compute
from core.node.ring.worker_supervisor import Supervisor
from core.version import compute_hash
from core.worker.messages import Listening
from tests.support.contexts import context_of
from tests.support.node_messages import from_frame
from tests.support.plans import mac_id, plan_of

OURS = Greeting(version="0.2.0", wire=(1, 2), compute="c" * 16, mlx_lm="0.32.2", mlx="0.32.4", installed_by="pip")


def other(**changes: Any) -> Greeting:
    return msgspec.structs.replace(OURS, installed_by="uv tool", **changes)


def test_macs_that_compute_alike_and_know_a_version_share_a_model() -> None:
    assert why_apart("mini", other(version="0.1.9", wire=(1, 1), mlx="0.31.0"), OURS) is None


@pytest.mark.parametrize(
    ("theirs", "what", "where"),
    [
        (other(version="0.1.0", wire=(1, 1), compute=""), "macluster 0.1.0, this Mac macluster 0.2.0", "mini"),
        (other(version="0.10.0", wire=(3, 4)), "macluster 0.10.0, this Mac macluster 0.2.0", "this Mac"),
        (
            other(mlx_lm="0.32.10", compute="d" * 16),
            "macluster 0.2.0 with mlx-lm 0.32.10, this Mac macluster 0.2.0 with mlx-lm 0.32.2",
            "this Mac",
        ),
        (other(compute="d" * 16), "macluster 0.2.0 (code ddddddd), this Mac macluster 0.2.0 (code ccccccc)", "mini"),
        (Greeting(installed_by="rm -rf"), "macluster of an unknown version with mlx-lm of an unknown version", "mini"),
    ],
)
def test_what_keeps_two_macs_apart_is_said_with_the_line_to_type_on_the_older_one(
    theirs: Greeting, what: str, where: str
) -> None:
    problem = why_apart("mini", theirs, OURS)
    assert problem
    assert f"mini has {what}" in problem.what
    known = where == "mini" and theirs.installed_by == "uv tool"
    isolated, other = (
        "`uv tool upgrade macluster`, then `macluster restart`",
        "type the lines that `macluster update` prints",
    )
    assert problem.fix == f"On {where}: {isolated if known else other}."


@pytest.mark.parametrize(
    ("one", "two", "both"), [((1, 1), (1, 1), 1), ((1, 3), (2, 5), 3), ((1, 2), (3, 4), None), ((4, 4), (1, 2), None)]
)
def test_two_macs_talk_in_the_newest_version_that_both_know(
    one: tuple[int, int], two: tuple[int, int], both: int | None
) -> None:
    assert wire_between(other(wire=one), other(wire=two)) == wire_between(other(wire=two), other(wire=one)) == both


def test_a_greeting_says_what_this_mac_runs() -> None:
    own = own_greeting()
    assert len(own.compute) == 16
    assert own.runs_on.startswith(f"mlx-lm {own.mlx_lm} · mlx {own.mlx} · Python 3.")


# ---- a ring computes with one version


async def test_a_worker_with_other_code_than_its_node_is_not_used() -> None:
    keeper = Supervisor(context_of(own_id=mac_id(0)), WorkerState())
    process: Any = object()
    keeper._process = process
    keeper._take(process, Listening(pid=1, port=2, compute="later"))
    with pytest.raises(NodeError, match="macluster restart"):
        await keeper.ready()
    keeper._take(process, Listening(pid=1, port=3, compute=compute_hash()))
    assert await keeper.ready() == 3


def test_a_stage_is_refused_by_a_mac_that_computes_otherwise() -> None:
    check_compute(PrepareStage.of(plan_of(2), 1).compute)
    with pytest.raises(NodeError, match=r"mlx-lm .* computes otherwise"):
        check_compute("later")


def test_a_plan_with_more_fields_is_read_and_bound_to_the_bytes_that_its_head_sent() -> None:
    order = LinkUp.of(plan_of(2), 7001)
    later = msgspec.json.encode(msgspec.to_builtins(plan_of(2)) | {"colour": "green"})
    sent = msgspec.structs.replace(order, sent=in_pieces(later))
    came = from_frame(*to_frame(sent))
    assert isinstance(came, LinkUp)
    assert came.plan() == plan_of(2)
    assert came.digest == sent.digest != order.digest


def test_a_plan_that_needs_what_this_version_cannot_do_is_refused_by_its_name() -> None:
    with pytest.raises(NodeError, match=r"needs far rows, which its macluster 0\.1\.0.* can't do"):
        PrepareStage.of(msgspec.structs.replace(plan_of(2), needs=("far rows",)), 1).plan()
    unknown: Any = "ring of rings"
    with pytest.raises(NotUnderstood, match="ring of rings"):
        PrepareStage.of(msgspec.structs.replace(plan_of(2), topology=unknown), 1).plan()
