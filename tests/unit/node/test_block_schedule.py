"""Blocks come from several Macs: each once, the rarest first, and no block is lost when a source fails."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.node.disks.block_schedule import MAX_BAD, STALLED_S, BlockSchedule, FileBlock

BLOCKS = [FileBlock("a", number) for number in range(12)]
SOURCES = ("one", "two", "three")
HAS = st.fixed_dictionaries({source: st.sets(st.sampled_from(BLOCKS)) for source in SOURCES})
# all events are drawn at once, which is faster: whether to ask for more, the source and the number; otherwise the
# running block that ends, and how
HAPPENS = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 5), st.integers(1, 4), st.integers(0, 59),
        st.sampled_from(["good", "good", "good", "bad", "gone"]),
    ),
    min_size=60, max_size=90,
)  # fmt: skip


def made(has: dict[str, set[FileBlock]]) -> BlockSchedule:
    return BlockSchedule(BLOCKS, has)


@given(has=HAS, happens=HAPPENS)
@pytest.mark.slow
def test_every_block_that_a_living_mac_has_arrives_whoever_fails(
    has: dict[str, set[FileBlock]], happens: list[tuple[bool, int, int, int, str]]
) -> None:
    schedule, alive, there = made(has), set(SOURCES), set[FileBlock]()
    under_way: dict[FileBlock, str] = {}
    bad: Counter[str] = Counter()
    for is_asked, whom, most, which, outcome in happens:
        if alive and is_asked:
            source = sorted(alive)[whom % len(alive)]
            run = schedule.take(source, most, 0.0)
            assert len(run) <= most
            assert all(following == block.following for block, following in pairwise(run))
            for block in run:
                assert block in has[source]
                assert block not in under_way
                assert block not in there
                under_way[block] = source
        elif under_way:
            block = sorted(under_way)[which % len(under_way)]
            source = under_way.pop(block)
            match outcome:
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
    while found := [block for source in sorted(alive) for block in schedule.take(source, 4, 0.0)]:
        for block in found:
            schedule.arrived(block)
            there.add(block)
    assert there >= set().union(*(has[source] for source in alive))
    assert schedule.is_done == (there == set(BLOCKS))
    assert not set(schedule.sources) & alive


def test_what_few_have_comes_first_in_rows_of_one_file() -> None:
    schedule = made({"one": set(BLOCKS), "two": set(BLOCKS[4:]), "three": set(BLOCKS[8:])})
    assert [schedule.take("one", 3, 0.0) for _ in range(4)] == [tuple(BLOCKS[n : n + 3]) for n in (0, 3, 6, 9)]
    rare = made({"one": set(BLOCKS), "two": set(BLOCKS[:5] + BLOCKS[6:])})
    assert rare.take("one", 4, 0.0) == (BLOCKS[5],), "nobody else has it, and what follows is not as rare"
    assert rare.take("one", 9, 0.0) == tuple(BLOCKS[:5])


def test_a_bad_block_is_asked_of_another_mac() -> None:
    schedule = made({"one": set(BLOCKS), "two": set(BLOCKS)})
    (block,) = schedule.take("one", 1, 0.0)
    assert not schedule.bad("one", block)
    assert schedule.take("two", 1, 0.0) == (block,)


def test_what_stalls_at_one_mac_is_asked_of_another_when_nothing_else_is_left() -> None:
    schedule = made({"slow": set(BLOCKS), "quick": set(BLOCKS)})
    slow = schedule.take("slow", 4, 0.0)
    for block in schedule.take("quick", 12, 0.0):
        assert schedule.arrived(block)
    assert schedule.take("quick", 12, STALLED_S - 0.1) == ()
    assert schedule.take("quick", 12, STALLED_S) == slow
    assert schedule.take("slow", 12, STALLED_S) == ()
    for block in slow:
        assert schedule.arrived(block)
        assert not schedule.arrived(block), "what comes twice counts once"
    assert schedule.is_done
