"""An answer ends before the first stop text, however the text is cut into pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.node.answers.running_answer import StopTexts

LETTERS = st.text("ab\n🐢", max_size=40)
STOPS = st.lists(st.text("ab\n🐢", min_size=1, max_size=5), max_size=4)


def expected(text: str, stops: list[str]) -> tuple[str, bool]:
    """Search letter by letter: the text before the longest stop text that ends first, and whether there is one."""
    for end in range(1, len(text) + 1):
        if ending := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, ending))], True
    return text, False


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(edges)]


@given(LETTERS, STOPS, st.lists(st.integers(0, 40)))
def test_what_is_shown_does_not_depend_on_the_pieces(text: str, stops: list[str], cuts: list[int]) -> None:
    watch, shown, fed = StopTexts(stops), "", ""
    for piece in pieces_of(text, cuts):
        fed += piece
        more, stopped = watch.feed(piece)
        shown += more
        if stopped:
            assert (shown, True) == expected(text, stops) == expected(fed, stops)
            assert (watch.flush(), watch.feed(text)) == ("", ("", True)), "nothing shows after the end"
            return
        held = fed[len(shown) :]
        assert shown + held == fed
        assert not held or any(stop.startswith(held) for stop in stops), "only a beginning is held back"
    assert (shown + watch.flush(), False) == expected(text, stops)
    assert watch.flush() == ""


@pytest.mark.parametrize(
    ("stops", "pieces", "shown"),
    [
        pytest.param([], ["any", "thing"], ["any", "thing"], id="none"),
        pytest.param(["END"], ["the E", "N", "D of"], ["the ", "", ""], id="over_three_pieces"),
        pytest.param(["END"], ["E", "E", "N", "x"], ["", "E", "", "ENx"], id="begins_anew"),
        pytest.param(["abcd", "bc"], ["abcd"], ["a"], id="the_one_that_ends_first"),
        pytest.param(["c", "abc"], ["abc"], [""], id="of_those_the_one_that_begins_first"),
        pytest.param(["abab!"], ["ab", "ab", "ab!"], ["", "", "ab"], id="begins_within_itself"),
        pytest.param(["\n\n"], ["a\n", "\nb"], ["a", ""], id="lines"),
    ],
)
def test_what_each_piece_shows(stops: list[str], pieces: list[str], shown: list[str]) -> None:
    watch = StopTexts(stops)
    assert [watch.feed(piece)[0] for piece in pieces] == shown
