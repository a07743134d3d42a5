from __future__ import annotations

import asyncio

from core.events import AnyEvent, Peer, PeerSeen, Snapshot, TokenEvent
from core.node.base.bus import READER_LIMIT, Bus
from core.snapshot import apply


def token(index: int) -> TokenEvent:
    return TokenEvent(request_id="r", index=index, token=index, text="")


def seen(name: str) -> PeerSeen:
    return PeerSeen(peer=Peer(device_id=name * 26, name=name))


async def take(bus: Bus, count: int, first: asyncio.Event) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    async for event in bus.follow():
        events.append(event)
        first.set()
        if len(events) == count:
            break
    return events


async def test_a_late_reader_ends_up_where_an_early_one_is() -> None:
    bus = Bus()
    marks = [asyncio.Event(), asyncio.Event()]
    early = asyncio.create_task(take(bus, 4, marks[0]))
    await marks[0].wait()
    bus.publish(seen("a"))
    bus.publish(seen("b"))
    late = asyncio.create_task(take(bus, 2, marks[1]))
    await marks[1].wait()
    bus.publish(seen("c"))
    sums = []
    for reader in (early, late):
        events = await asyncio.wait_for(reader, 1)
        assert isinstance(events[0], Snapshot)
        now = Snapshot()
        for event in events:
            now = apply(now, event)
        sums.append(now)
    assert sums == [bus.now, bus.now]
    assert [p.name for p in bus.now.peers] == ["a", "b", "c"]


async def test_a_reader_too_far_behind_is_dropped_and_the_others_go_on() -> None:
    bus = Bus()
    slow = bus.follow()
    assert isinstance(await anext(slow), Snapshot)
    for index in range(READER_LIMIT + 50):
        bus.publish(token(index))
    got = [event async for event in slow]
    assert got == [token(n) for n in range(READER_LIMIT)], "what it has is whole, and then it ends"
    fresh = bus.follow()
    await anext(fresh)
    bus.publish(token(1))
    assert await anext(fresh) == token(1)
    await fresh.aclose()


async def test_close_ends_every_stream() -> None:
    bus = Bus()
    readers = [bus.follow() for _ in range(3)]
    for reader in readers:
        await anext(reader)
    bus.close()
    assert [[e async for e in reader] for reader in readers] == [[], [], []]


async def test_who_follows_one_request_hears_of_no_other() -> None:
    bus = Bus()
    own, other = bus.follow("r"), bus.follow("another")
    for reader in (own, other):
        await anext(reader)
    for event in (seen("a"), token(1), token(2)):
        bus.publish(event)
    bus.close()
    assert [[event async for event in reader] for reader in (own, other)] == [[token(1), token(2)], []]
