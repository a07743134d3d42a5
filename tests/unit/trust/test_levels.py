from hypothesis import given
from hypothesis import strategies as st

from core.events import Level
from core.trust.levels import LEVELS, carries_prompts, level_of, rank, weakest

levels = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=12)


def test_levels_are_ordered_as_the_specification_numbers_them() -> None:
    assert [rank(level) for level in ("blocked", "unpaired", "seen", "paired")] == [0, 1, 2, 3]


def test_prompts_flow_from_paired_on() -> None:
    assert [level for level in LEVELS if carries_prompts(level)] == ["paired"]


def test_nobody_carries_no_prompts() -> None:
    assert not carries_prompts(weakest([]))


@given(levels, levels)
def test_min_level_law(some: list[Level], others: list[Level]) -> None:
    together = weakest(some + others)
    assert together in some + others
    assert all(rank(together) <= rank(level) for level in some + others)
    assert together == weakest([weakest(some), weakest(others)])
    assert carries_prompts(together) == all(carries_prompts(level) for level in some + others)


def test_a_mac_is_as_trusted_as_the_roster_says() -> None:
    assert [level_of(listed=level) for level in LEVELS] == list(LEVELS)
    assert level_of(listed="paired", seen=True) == "paired"


def test_a_stranger_is_unpaired_or_seen_and_never_more() -> None:
    assert level_of(listed=None) == "unpaired"
    assert level_of(listed=None, seen=True) == "seen"
    assert level_of(listed=None, forked=True) == "unpaired"


@given(st.none() | st.sampled_from(LEVELS), st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_one_thing_wrong_blocks_and_only_the_roster_opens(
    listed: Level | None, revoked: bool, forked: bool, wrong_key: bool, other_model: bool, seen: bool
) -> None:
    level = level_of(
        listed=listed, revoked=revoked, forked=forked, wrong_key=wrong_key, other_model=other_model, seen=seen
    )
    if revoked or wrong_key or other_model or (forked and listed):
        assert level == "blocked"
    assert not carries_prompts(level) or level == listed
