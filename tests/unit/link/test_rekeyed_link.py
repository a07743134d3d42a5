"""One conversation over successive control links: nothing is lost, doubled or overtaken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import LinkError, LinkLost, ProtocolError, SealError
from core.link import control_link
from core.link.control_link import ControlLink, serve_control
from core.link.frames import FrameType
from core.link.rekey_limits import KeyUse
from core.link.rekeyed_link import RekeyedLink
from core.link.seal import MAX_FRAMES_PER_KEY
from core.trust.roster.store import RosterStore
from tests.support.control_links import HOST, LinkListener, soon
from tests.support.macs import bundle, chain, cluster, mac
from tests.support.waiting import until

ROUNDS = 40
ENDLESS = KeyUse(frames=1 << 52, bytes=1 << 52, age_s=1e9)


@pytest.fixture
async def listener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LinkListener]:
    monkeypatch.setattr(control_link, "PEER_LINKS", ROUNDS)  # an hour's change of keys takes a moment here
    listener = LinkListener()
    listener.server = await serve_control(
        HOST, 0, identity=mac(1), cluster=lambda: listener.knows(), on_link=listener.take
    )
    yield listener
    listener.server.close()
    await listener.server.wait_closed()
    for link in listener.open:
        link.close()
    await asyncio.gather(*(link.wait_closed() for link in listener.open))


async def lines(listener: LinkListener) -> tuple[RekeyedLink, RekeyedLink]:
    near, far = await listener.pair()
    return RekeyedLink(near, dialled=True), RekeyedLink(far, dialled=False)


async def renew(
    listener: LinkListener, near: RekeyedLink, far: RekeyedLink, **how: Any
) -> tuple[ControlLink, ControlLink]:
    """New links for both ends, as the dialler makes them."""
    links = await listener.pair(**how)
    far.set_aside(RekeyedLink(links[1], dialled=False))
    near.renew(links[0])
    return links


async def count_up(line: RekeyedLink) -> None:
    for number in range(ROUNDS * 5):
        await line.link.send(FrameType.PING, b"%d" % number)
        await asyncio.sleep(0)


async def count_along(line: RekeyedLink) -> None:
    for number in range(ROUNDS * 5):
        assert await line.recv() == (FrameType.PING, b"%d" % number)


async def test_frames_come_once_and_in_order_while_links_change_under_them(listener: LinkListener) -> None:
    near, far = await lines(listener)
    used = {near.link}

    async def change() -> None:
        for _ in range(ROUNDS):
            used.add((await renew(listener, near, far))[0])
            while near.is_renewing:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0)

    work = (count_up(near), count_up(far), count_along(near), count_along(far))
    changing = asyncio.create_task(change())
    await asyncio.wait_for(asyncio.gather(*work), 30)
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)
    assert len(used) > 3


async def test_what_was_sent_on_the_new_link_waits_for_the_old_one_at_both_ends(listener: LinkListener) -> None:
    near, far = await lines(listener)
    old = far.link
    await near.link.send(FrameType.PING, b"old")
    links = await renew(listener, near, far)
    await near.link.send(FrameType.PING, b"new")
    await far.link.send(FrameType.TELEMETRY, b"old")
    assert (near.link, near.is_renewing, far.link) == (links[0], True, old)
    assert [(await soon(far.recv()))[1] for _ in range(2)] == [b"old", b"new"]
    await far.link.send(FrameType.TELEMETRY, b"new")
    assert (far.link, far.is_renewing) == (links[1], False)
    assert [(await soon(near.recv()))[1] for _ in range(2)] == [b"old", b"new"]
    assert not near.is_renewing
    await soon(old.wait_closed())


async def test_an_old_link_that_ends_without_a_resume_ends_the_line_and_leaves_the_other_link_aside(
    listener: LinkListener,
) -> None:
    near, far = await lines(listener)
    links = await listener.pair()
    far.set_aside(RekeyedLink(links[1], dialled=False))
    near.link.close()
    with pytest.raises(LinkLost):
        await soon(far.recv())
    aside = far.take_aside()
    assert aside
    assert aside.link is links[1]
    await links[0].send(FrameType.PING, b"anew")
    assert await soon(aside.recv()) == (FrameType.PING, b"anew")


async def test_a_link_aside_that_ended_meanwhile_is_not_kept(listener: LinkListener) -> None:
    _, far = await lines(listener)
    links = await listener.pair()
    far.set_aside(RekeyedLink(links[1], dialled=False))
    links[0].close()
    await soon(links[0].wait_closed())
    await until(lambda: links[1].is_closed)
    assert far.take_aside() is None


async def test_only_the_newest_is_kept_aside_and_all_are_closed_with_the_line(listener: LinkListener) -> None:
    _, far = await lines(listener)
    first, second = await listener.pair(), await listener.pair()
    for _, link in (first, second):
        far.set_aside(RekeyedLink(link, dialled=False))
    with pytest.raises(LinkLost):
        await soon(first[0].recv())
    far.close()
    with pytest.raises(LinkLost):
        await soon(second[0].recv())


async def test_a_resume_to_nowhere_is_refused(listener: LinkListener) -> None:
    near, far = await lines(listener)
    near.link.succeed((await listener.pair())[0])
    with pytest.raises(ProtocolError, match="did not dial"):
        await soon(far.recv())


async def test_only_who_dialled_says_resume_first(listener: LinkListener) -> None:
    near, far = await lines(listener)
    links = await listener.pair()
    near.set_aside(RekeyedLink(links[0], dialled=False))
    far.link.succeed(links[1])
    with pytest.raises(ProtocolError, match="did not dial"):
        await soon(near.recv())


async def test_a_resume_does_not_lead_to_a_link_that_this_mac_dialled_itself(listener: LinkListener) -> None:
    near, far = await lines(listener)
    links = await listener.pair()
    far.set_aside(RekeyedLink(links[1], dialled=True))
    near.renew(links[0])
    with pytest.raises(ProtocolError, match="did not dial"):
        await soon(far.recv())


async def test_a_resume_that_carries_something_is_refused(listener: LinkListener) -> None:
    near, far = await lines(listener)
    far.set_aside(RekeyedLink((await listener.pair())[1], dialled=False))
    near.link._put(FrameType.RESUME, b"x")
    with pytest.raises(ProtocolError, match="RESUME of 1 bytes"):
        await soon(far.recv())


async def test_what_waits_for_equal_rosters_goes_on_with_the_new_link(listener: LinkListener, tmp_path: Path) -> None:
    stores = [RosterStore(tmp_path / str(n)) for n in range(2)]
    for store, size in zip(stores, (4, 2), strict=True):
        store.adopt(bundle(chain(size), *(mac(n).certificate_der for n in range(size))))
    listener.knows = stores[1].cluster
    links = await listener.pair(knows=stores[0].cluster())
    near, far = RekeyedLink(links[0], dialled=True), RekeyedLink(links[1], dialled=False)
    await near.link.send(FrameType.PING, b"held")
    listener.knows = stores[0].cluster
    await renew(listener, near, far, knows=stores[0].cluster())
    assert await soon(far.recv()) == (FrameType.PING, b"held")


async def test_a_conversation_that_was_open_stays_open_when_a_roster_came_in_between(listener: LinkListener) -> None:
    """Equal rosters once are enough, as on one link; a newer roster travels between the other frames."""
    near, far = await lines(listener)
    listener.knows = lambda: cluster(4)
    await renew(listener, near, far)
    assert near.link.epochs_differ
    await near.link.send(FrameType.PING, b"still flows")
    assert await soon(far.recv()) == (FrameType.PING, b"still flows")


# ---- wear


async def test_a_key_is_worn_by_frames_by_bytes_and_by_age_of_either_direction(listener: LinkListener) -> None:
    near, far = await listener.pair()
    assert not near.needs_new_keys(ENDLESS)
    for number in range(9):
        await far.send(FrameType.PING, bytes(100 * number))
        await soon(near.recv())
    for link in (near, far):
        assert link.needs_new_keys(KeyUse(frames=10, bytes=1 << 52, age_s=1e9)), "the frame of the handshake counts"
        assert not link.needs_new_keys(KeyUse(frames=11, bytes=1 << 52, age_s=1e9))
        total = sum(48 + 16 + 100 * number for number in range(9))
        assert link.needs_new_keys(KeyUse(frames=1 << 52, bytes=total, age_s=1e9))
        assert not link.needs_new_keys(KeyUse(frames=1 << 52, bytes=total + 1, age_s=1e9))
        assert link.needs_new_keys(KeyUse(frames=1 << 52, bytes=1 << 52, age_s=0.0))


async def test_a_key_that_nobody_renewed_stops(listener: LinkListener) -> None:
    near, far = await listener.pair()
    near._sealer._seq = far._opener._seq = MAX_FRAMES_PER_KEY - 1
    await near.send(FrameType.PING, b"the last")
    assert await soon(far.recv()) == (FrameType.PING, b"the last")
    with pytest.raises(SealError, match="as many frames as one key may"):
        await near.send(FrameType.PING, b"one more")
    line = RekeyedLink(near, dialled=True)
    with pytest.raises(LinkError):
        line.renew((await listener.pair())[0])
