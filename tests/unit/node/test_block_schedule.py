"""Blocks come from several Macs: each once, the rarest first, and whoever fails costs no block."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from core.node.disks.block_schedule import MAX_BAD, BlockSchedule, FileBlock

BLOCKS = [FileBlock("a", number) for number in range(12)]
SOURCES = ("one", "two", "three")
HAS = st.fixed_dictionaries({source: st.sets(st.sampled_from(BLOCKS)) for source in SOURCES})


def made(has: dict[str, set[FileBlock]]) -> BlockSchedule:
    schedule = BlockSchedule(BLOCKS)
    schedule.offer(has)
    return schedule


@given(has=HAS, data=st.data())
def test_every_block_that_a_living_mac_has_arrives_whoever_fails(
    has: dict[str, set[FileBlock]], data: st.DataObject
) -> None:
    schedule, alive, there = made(has), set(SOURCES), set[FileBlock]()
    under_way: dict[FileBlock, str] = {}
    bad: Counter[str] = Counter()
    for _ in range(200):
        is_asked = data.draw(st.booleans())
        if alive and is_asked:
            source = data.draw(st.sampled_from(sorted(alive)))
            if block := schedule.next(source):
                assert block in has[source]
                assert block not in under_way
                assert block not in there
                under_way[block] = source
        elif under_way:
            block = data.draw(st.sampled_from(sorted(under_way)))
            source = under_way.pop(block)
            match data.draw(st.sampled_from(["good", "good", "good", "bad", "gone"])):
                case "good":
                    schedule.arrived(block)
                    there.add(block)
                case "bad":
                    bad[source] += 1
                    is_out = schedule.bad(source, block)
                    assert is_out == (bad[source] >= MAX_BAD)
                    alive -= {source} if is_out else set()
                case _:
                    schedule.gone(source)
                    alive.discard(source)
            if source not in alive:
                under_way = {block: asked for block, asked in under_way.items() if asked != source}
    for block in under_way:
        schedule.arrived(block)
        there.add(block)
    while found := [(source, block) for source in sorted(alive) if (block := schedule.next(source))]:
        for _, block in found:
            schedule.arrived(block)
            there.add(block)
    assert there >= set().union(*(has[source] for source in alive))
    assert schedule.is_done == (there == set(BLOCKS))
    assert not set(schedule.sources) & alive


def test_what_few_have_comes_first() -> None:
    schedule = made({"one": set(BLOCKS), "two": set(BLOCKS[4:]), "three": set(BLOCKS[8:])})
    assert [schedule.next("one") for _ in range(12)] == BLOCKS


def test_a_bad_block_is_asked_of_another_mac() -> None:
    schedule = made({"one": set(BLOCKS), "two": set(BLOCKS)})
    block = schedule.next("one")
    assert block
    assert not schedule.bad("one", block)
    assert schedule.next("two") == block
