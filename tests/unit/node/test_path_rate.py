"""The rate of a path, measured on its own real link besides the control link, with one burst at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.address import Place
from core.errors import LinkError, LinkLost
from core.link.control_link import ControlLink, dial_control
from core.link.network_paths import NetworkPath
from core.link.session import Kind
from core.mac.network_kind import interface_of
from core.node.base.node_message import NodeMessage, to_frame
from core.node.peers.link_probe import FRAME_BYTES
from core.node.peers.messages import LinkProbe, Ping
from core.node.peers.networks import Networks
from core.node.peers.path_rate import BURST
from core.node.peers.paths import Paths
from tests.support.macs import cluster, mac
from tests.support.meshes import HIGH, HOST, LOW, MIDDLE, SIZE, Post, posted
from tests.support.waiting import until


async def dial_path(post: Post, number: int) -> ControlLink:
    return await dial_control(
        HOST,
        post.port,
        identity=mac(LOW),
        cluster=cluster(SIZE),
        peer_id=mac(number).device_id,
        timeout_s=60.0,
        kind=Kind.PATH,
    )


async def test_a_path_is_measured_beside_the_control_link(tmp_path: Path) -> None:
    async with posted(tmp_path, LOW) as low, posted(tmp_path, HIGH) as high:
        low.book.by_hand(mac(HIGH).text_id, Place(HOST, high.port))
        low.mesh.dialling.reach(mac(HIGH).text_id)
        await until(lambda: low.knows(HIGH) and high.knows(LOW))
        paths = Paths(mac(LOW), low.store, low.mesh, Networks(HOST, low.signals), low.book)
        for interface in ("", interface_of(HOST)):
            assert await paths.rate(mac(HIGH).text_id, NetworkPath(HOST, interface)) > 0
        await until(lambda: high.open == 1)
        assert (low.ends, high.ends, high.heard) == ([], [], [])
        with pytest.raises(LinkLost, match="No address"):
            await paths.rate(mac(MIDDLE).text_id, NetworkPath(HOST))


async def answers(link: ControlLink) -> int:
    """Count messages until the other end closes the link."""
    told = 0
    try:
        while await link.recv():
            told += 1
    except LinkError:
        return told
    finally:
        link.close()
        await link.wait_closed()


@pytest.mark.parametrize(
    ("words", "most"),
    [
        pytest.param([LinkProbe(number=n, size=0) for n in range(100)], BURST.round_trips + BURST.frames, id="more"),
        pytest.param([Ping(sent=0.0), LinkProbe(number=1, size=0)], 0, id="something else"),
        pytest.param([], 0, id="nothing"),
    ],
)
@pytest.mark.promise("P28")
async def test_nobody_has_more_answered_over_a_path_than_a_burst(
    tmp_path: Path, words: list[NodeMessage], most: int
) -> None:
    assert BURST.frames * FRAME_BYTES <= 2 << 20
    async with posted(tmp_path, HIGH) as high:
        link = await dial_path(high, HIGH)
        for word in words:
            await link.send(*to_frame(word))
        assert await answers(link) <= most
        await until(lambda: high.open == 0)
        assert high.heard == []
