"""T3: a rogue advertises a member's name and a member's id; a real node dials it, and it gains nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading

import pytest

from core.events import Peer
from core.link.frames import FrameType
from core.node.base.node_message import to_frame
from core.node.peers.messages import Ping
from core.trust.identity import text_id
from tests.attacks.victim import (
    SIZE,
    Observer,
    Stranger,
    Victim,
    advertised,
    cast,
    last_words,
    member_server,
    running_victim,
    serving,
)
from tests.support.macs import cluster, mac
from tests.support.node_messages import STATUS, from_frame
from tui.cli.watch import Watch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("bonjour")]


def peer(observer: Observer, device_id: str) -> Peer | None:
    return next((p for p in observer.now.peers if p.device_id == device_id), None)


@pytest.mark.promise("T3")
async def test_a_rogue_with_a_members_name_stays_unpaired() -> None:
    rogue = text_id(b"r" * 16)
    member = cluster(SIZE).roster.member(mac(cast().high).device_id)
    assert member
    with running_victim(cast().victim) as victim:
        async with Observer(victim) as observer, advertised(rogue, member.raw_name, 9):
            await observer.until(lambda w: peer(observer, rogue) is not None, 240, "Seeing the rogue")
            seen = peer(observer, rogue)
            assert seen
            assert (seen.name, seen.state, seen.trust) == (member.name, "seen", "unpaired")
            assert seen.short_id != mac(cast().high).text_id[:8], "what is shown behind every name"


@pytest.mark.parametrize("leaf", ["a stranger's", "one in the member's name", "another member's"])
@pytest.mark.promise("P12")
async def test_a_rogue_with_a_members_id_gets_no_link_and_takes_none_away(leaf: str) -> None:
    """The node dials it, as that id is a member's; the key that answers decides."""
    claimed = mac(cast().high).text_id
    server = ssl.PROTOCOL_TLS_SERVER
    contexts = {
        "a stranger's": Stranger().context(server),
        "one in the member's name": Stranger(claimed).context(server),
        "another member's": member_server(cast().other),
    }
    dialled = threading.Event()

    def answer(sock: socket.socket) -> None:
        dialled.set()
        with contexts[leaf].wrap_socket(sock, server_side=True) as tls:
            last_words(tls)

    with running_victim(cast().victim) as victim, serving(answer) as port:
        async with Observer(victim) as observer:
            before = await observer.links()
            async with advertised(claimed, b"studio", port):
                assert await asyncio.to_thread(dialled.wait, 15)
                await observer.until(lambda w: peer(observer, claimed) is not None, 240, "Seeing the claim")
                await honest_link_stands(victim, observer, claimed)
                assert await observer.links() == before + 1, "the honest one"


async def honest_link_stands(victim: Victim, observer: Observer, claimed: str) -> None:
    """The member itself links while the rogue uses its name: it is connected, and paired."""
    link = await victim.dial(cast().high)
    while (frame := await link.recv())[0] is not FrameType.PING:
        pass
    ping = from_frame(*frame)
    assert isinstance(ping, Ping)
    await link.send(*to_frame(Ping(sent=ping.sent, answers=ping.sent, status=STATUS)))

    def is_there(_: Watch) -> bool:
        found = peer(observer, claimed)
        return found is not None and (found.state, found.trust) == ("connected", "paired")

    try:
        await observer.until(is_there, 240, "The member's own link")
    finally:
        link.close()
        await link.wait_closed()
