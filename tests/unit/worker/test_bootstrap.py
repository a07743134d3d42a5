"""0x07: messages between ranks, by table and over a real ring; the address of the coordinator."""

from __future__ import annotations

import struct
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from core.errors import GroupFailed, LinkError, ProtocolError
from core.worker.bootstrap import COORDINATOR_PORT, Bootstrap, RankEntry, agree, decode, encode
from tests.support.linked import WAIT_S, Linked

UID = bytes(range(16))
ONE = RankEntry(hosts=("192.168.1.7", "169.254.3.1"), ports=(40000, 40001), devices=("rdma_en2", "rdma_en3"))


def body(entries: Any, port: int = COORDINATOR_PORT) -> bytes:
    return struct.pack("<H16s", port, UID) + msgspec.msgpack.encode(entries)


def entry(hosts: Any = (), ports: Any = (1, 2), devices: Any = ("", "")) -> list[Any]:
    return [hosts, ports, devices]


def test_the_body_is_the_port_the_session_and_what_the_ranks_tell() -> None:
    told = Bootstrap(UID, (ONE, RankEntry()))
    assert encode(told)[:18] == (29400).to_bytes(2, "little") + UID
    assert decode(encode(told)) == told


@pytest.mark.parametrize(
    "data",
    [
        b"",
        body([])[:17],
        body([]) + b"\x01",
        body([], port=0),
        body([], port=80),
        body([entry(ports=(1, 65536))]),
        body([entry(ports=(-1, 1))]),
        body([entry(ports=(1, 2, 3))]),
        body([entry(hosts=["10.0.0.256"])]),
        body([entry(hosts=["10.0.0.1\n"])]),
        body([entry(hosts=["studio.local"])]),
        body([entry(hosts=["::1"])]),
        body([entry(hosts=["10.0.0.1"] * 9)]),
        body([entry(devices=("../../etc", ""))]),
        body([entry(devices=("r" * 33, ""))]),
        body([entry(devices=("rdma_en2\n", ""))]),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ([("10.0.0.1",), ("10.0.0.1",)], "10.0.0.1"),
        ([("169.254.1.1", "10.0.0.1"), ("10.0.0.1", "169.254.1.1"), ("10.0.0.1",)], "10.0.0.1"),
        ([("10.0.0.1", "10.0.1.1"), ("10.0.1.1", "10.0.0.1")], "10.0.0.1"),
        ([("169.254.1.1", "169.254.2.1"), ("169.254.1.1",), ("169.254.2.1",)], None),
        ([("10.0.0.1",), ("10.9.9.9",)], None),
        ([(), ()], None),
    ],
)
def test_the_coordinator_is_where_all_others_reach_the_first_rank(
    hosts: list[tuple[str, ...]], found: str | None
) -> None:
    told = Bootstrap(UID, tuple(RankEntry(hosts=each) for each in hosts))
    if found:
        assert told.coordinator == found
    else:
        with pytest.raises(GroupFailed, match="no address"):
            _ = told.coordinator


@pytest.fixture
def linked() -> Any:
    with ExitStack() as stack:
        made = Linked(stack, 3, topology="tensor")
        made.link()
        yield made


def test_all_ranks_know_the_same_in_the_end(linked: Linked) -> None:
    def tell(so_far: Bootstrap) -> RankEntry:
        return RankEntry(ports=(len(so_far.ranks), 0))

    asked = [linked.pool.submit(agree, ring, tell) for ring in linked.rings]
    told = [each.result(WAIT_S) for each in asked]
    assert told[0] == told[1] == told[2]
    assert [each.ports[0] for each in told[0].ranks] == [0, 1, 2]


def test_a_rank_that_cannot_take_part_ends_the_wait_of_all(linked: Linked) -> None:
    others = [linked.pool.submit(agree, ring, lambda _: ONE) for ring in linked.rings[:2]]
    linked.rings[2].send_break(GroupFailed("There is no cable.").problem)
    linked.rings[2].close()
    with pytest.raises(LinkError):
        others[0].result(WAIT_S)
    linked.rings[0].close()
    with pytest.raises(LinkError):
        others[1].result(WAIT_S)
