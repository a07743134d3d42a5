from hypothesis import given
from hypothesis import strategies as st

from core.events import Level
from core.trust.levels import LEVELS, carries_prompts, rank, weakest

levels = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=12)


def test_levels_are_ordered_as_the_specification_numbers_them() -> None:
    assert [rank(level) for level in ("blocked", "unpaired", "seen", "paired", "hardware-bound")] == [0, 1, 2, 3, 4]


def test_prompts_flow_from_paired_on() -> None:
    assert [level for level in LEVELS if carries_prompts(level)] == ["paired", "hardware-bound"]


def test_nobody_carries_no_prompts() -> None:
    assert not carries_prompts(weakest([]))


@given(levels, levels)
def test_min_level_law(some: list[Level], others: list[Level]) -> None:
    together = weakest(some + others)
    assert together in some + others
    assert all(rank(together) <= rank(level) for level in some + others)
    assert together == weakest([weakest(some), weakest(others)])
    assert carries_prompts(together) == all(carries_prompts(level) for level in some + others)
