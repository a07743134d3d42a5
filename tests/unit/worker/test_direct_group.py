"""Meeting of ranks that MLX links by itself, over the real links of a ring on loopback."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from core.errors import GroupFailed
from core.mac.rdma import RdmaSeen
from core.worker.bootstrap import RankEntry
from core.worker.group import _meet, _reached, open_rdma, own_devices
from tests.support.linked import WAIT_S, Linked

READY = RdmaSeen("26.2", "enabled\n", "rdma_en5 4af0dd0c4f9b0000\n")


def test_ranks_meet_where_all_reach_the_first_one() -> None:
    with ExitStack() as stack:
        linked = Linked(stack, 3, topology="tensor")
        linked.link()
        asked = [linked.pool.submit(_meet, ring, (f"rdma_en{n}", "rdma_en9")) for n, ring in enumerate(linked.rings)]
        told = [each.result(WAIT_S) for each in asked]
        assert told[0] == told[1] == told[2]
        assert told[0].coordinator == "127.0.0.1"
        assert [each.devices[0] for each in told[0].ranks] == ["rdma_en0", "rdma_en1", "rdma_en2"]


def test_an_address_at_which_nobody_answers_is_none() -> None:
    assert _reached(RankEntry()) == ()
    assert _reached(RankEntry(hosts=("127.0.0.1",), ports=(1, 0))) == ()


def test_without_a_cable_no_rank_begins() -> None:
    with ExitStack() as stack:
        linked = Linked(stack, 2, topology="tensor")
        linked.link()
        with pytest.raises(GroupFailed, match="needs a Mac"):
            open_rdma(linked.head)
        with pytest.raises(GroupFailed, match=r"127\.0\.0\.1 uses no cable"):
            own_devices(linked.head.neighbours, READY)
