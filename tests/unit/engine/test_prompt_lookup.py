"""Guesses from a row's earlier tokens: equal to a full rescan, and fewer after wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.prompt_lookup import FIRST_REST, LENGTHS, LONGEST_REST, PromptLookup

SHORT = st.lists(st.integers(0, 3), max_size=30)


def rescanned(history: list[int], most: int) -> list[int]:
    """The tokens after the latest earlier occurrence of the longest n-gram at the end, by a search from the start."""
    for length in LENGTHS:
        ends = [end for end in range(length, len(history)) if history[end - length : end] == history[-length:]]
        if ends:
            text = list(history)
            for number in range(most):
                text.append(text[ends[-1] + number])
            return text[len(history) :]
    return []


@given(st.lists(SHORT, min_size=1), st.integers(1, 4))
def test_it_finds_what_a_rescan_finds(parts: list[list[int]], most: int) -> None:
    lookup, history = PromptLookup(parts[0], 4), list(parts[0])
    assert list(lookup.draft(most)) == rescanned(history, most)
    for part in parts[1:]:
        history += part
        lookup.extend(part)
        assert list(lookup.draft(most)) == rescanned(history, most)


@pytest.mark.parametrize(
    ("history", "draft"),
    [
        pytest.param([1, 2, 3, 9, 1, 2], (3, 9, 1, 2), id="two tokens"),
        pytest.param([1, 2, 7, 7, 1, 2, 8, 8, 1, 2], (8, 8, 1, 2), id="the latest one"),
        pytest.param([5, 1, 2, 7, 7, 7, 6, 1, 2, 8, 8, 5, 1, 2], (7, 7, 7, 6), id="the longest one goes first"),
        pytest.param([4, 4, 4], (4, 4, 4, 4), id="it goes on with itself"),
        pytest.param([1, 2, 3, 1, 2, 3], (1, 2, 3, 1), id="round and round"),
        pytest.param([1, 2, 3, 4], (), id="nothing was there before"),
        pytest.param([3, 1, 2, 1], (), id="one token alone says nothing"),
        pytest.param([], (), id="nothing at all"),
    ],
)
def test_what_is_guessed(history: list[int], draft: tuple[int, ...]) -> None:
    assert PromptLookup(history, 16).draft(99) == draft
    assert PromptLookup(history, 16).draft(1) == draft[:1]
    assert PromptLookup(history, 16).draft(0) == ()


@pytest.mark.parametrize(
    ("right", "sizes"),
    [
        pytest.param([4, 8, 16, 16], [4, 8, 16, 16, 16], id="doubles while all is right, up to the most"),
        pytest.param([4, 3, 0, 1, 0, 1], [4, 8, 4, 1, 2, 1, 2], id="one longer than what was right"),
        pytest.param([0, 0, 0], [4, 1, 1, 0], id="three that are all wrong are enough"),
        pytest.param([4, 0, 0, 0, 0], [4, 8, 1, 1, 1, 0], id="more if others were right before"),
    ],
)
def test_how_much_is_guessed_next(right: list[int], sizes: list[int]) -> None:
    lookup = PromptLookup([7] * 9, 16)
    for accepted, size in zip([*right, -1], sizes, strict=True):
        assert len(lookup.draft(99)) == size
        if accepted >= 0:
            lookup.note_result(size, accepted)


def test_what_is_wrong_rests_ever_longer_until_something_is_right() -> None:
    lookup = PromptLookup([7] * 9, 16)
    for _ in range(3):
        lookup.note_result(len(lookup.draft(99)), 0)
    rests = []
    for right in (0, 0, 0, 0, 0, 0, 1):
        rests.append(rest(lookup))
        assert len(lookup.draft(99)) == 1, "a trial"
        lookup.note_result(1, right)
    doubled = [FIRST_REST << number for number in range(7)]
    assert rests == [min(each, LONGEST_REST) for each in doubled]
    assert len(lookup.draft(99)) == 2, "on again"
    for _ in range(3):
        lookup.note_result(len(lookup.draft(99)), 0)
    assert rest(lookup) == FIRST_REST


def rest(lookup: PromptLookup) -> int:
    """The number of tokens before the next guess."""
    for number in range(2 * LONGEST_REST):
        if lookup.draft(99):
            return number
        lookup.extend([7])
    raise AssertionError("it never guesses again")


@pytest.mark.parametrize(
    ("parts", "expects"),
    [
        pytest.param([[1, 2, 3, 9, 1, 2], [3]], True, id="the newest token was foreseen"),
        pytest.param([[1, 2, 3, 9, 1, 2], [4]], False, id="another one came"),
        pytest.param([[1, 2, 3, 9, 1], [2]], False, id="nothing was there before"),
        pytest.param([[1, 2, 3, 9, 1, 2, 3]], False, id="nobody looked at the prompt"),
        pytest.param([[1], [7, 8]], True, id="guesses were right"),
    ],
)
def test_text_that_repeats_itself_is_worth_waiting_for(parts: list[list[int]], expects: bool) -> None:
    lookup = PromptLookup(parts[0], 4)
    for part in parts[1:]:
        lookup.extend(part)
    assert lookup.expects is expects
    for _ in range(3):
        lookup.note_result(4, 0)
    assert not lookup.expects, "it rests"


def test_what_another_guessed_was_not_foreseen_here() -> None:
    lookup = PromptLookup([1, 2, 3, 9, 1, 2], 4)
    lookup.extend([4, 5, 6], guessed=False)
    assert not lookup.expects
    lookup.extend([1, 2], guessed=False)
    lookup.extend([4, 5], guessed=False)
    assert lookup.expects, "its first one was"
