"""The tree of a conversation: the screen shows one path, and no message is ever lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.text import Clean
from tui.state import chats, conversation
from tui.state.branches import crossing, forked, place_words, siblings, turned
from tui.state.chats import Chat
from tui.state.state import UiState, with_answer
from tui.state.turns import Turn


def turn(number: int, parent: int, text: str = "x") -> Turn:
    """The text of a turn: questions have odd depths in these trees, and begin with q."""
    role = "user" if text.startswith("q") else "assistant"
    return Turn(number=number, parent=parent, role=role, text=Clean(text), at=1.0)  # type: ignore[arg-type]


def numbers(turns: tuple[Turn, ...]) -> list[int]:
    return [each.number for each in turns]


#          1 q ── 2 a ── 3 q ── 4 a
#            │      └─── 7 q ── 8 a
#            └─── 5 a ── 6 q (never answered)
TREE = {
    each.number: each
    for each in (
        *(turn(1, 0, "q"), turn(2, 1, "a"), turn(3, 2, "q"), turn(4, 3, "a")),
        *(turn(5, 1, "b"), turn(6, 5, "q"), turn(7, 2, "q"), turn(8, 7, "a")),
    )
}


def split(*path: int) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    return tuple(TREE[n] for n in path), tuple(each for n, each in TREE.items() if n not in path)


@pytest.mark.parametrize(
    ("path", "at", "step", "then"),
    [
        pytest.param((1, 2, 3, 4), 3, 1, [1, 2, 7, 8], id="the-next-question"),
        pytest.param((1, 2, 7, 8), 7, -1, [1, 2, 3, 4], id="and-back"),
        pytest.param((1, 2, 3, 4), 2, 1, [1, 5, 6], id="the-other-answer"),
        pytest.param((1, 5, 6), 5, -1, [1, 2, 7, 8], id="through-what-was-said-last"),
        pytest.param((1, 2, 3, 4), 3, -1, [1, 2, 3, 4], id="none-before"),
        pytest.param((1, 2, 7, 8), 7, 1, [1, 2, 7, 8], id="none-behind"),
        pytest.param((1, 2, 3, 4), 1, 1, [1, 2, 3, 4], id="it-stands-alone"),
        pytest.param((1, 2, 3, 4), 9, 1, [1, 2, 3, 4], id="it-is-not-there"),
        pytest.param((1, 2, 3, 4), 7, 1, [1, 2, 3, 4], id="it-is-not-shown"),
    ],
)
def test_one_goes_to_the_branch_beside(path: tuple[int, ...], at: int, step: int, then: list[int]) -> None:
    shown, others = turned(*split(*path), at, step)
    assert numbers(shown) == then
    assert sorted([*shown, *others], key=lambda each: each.number) == list(TREE.values())


def test_each_place_says_which_of_how_many() -> None:
    shown, others = split(1, 2, 7, 8)
    assert [place_words(shown, others, n) for n in (1, 2, 7, 8)] == ["", "1/2 ‹ ›", "2/2 ‹ ›", ""]
    assert [crossing(shown, others, n) for n in (0, 2, 7, 8)] == [7, 2, 7, 0]
    assert crossing((), ()) == 0


@pytest.mark.parametrize(
    ("texts", "cut", "waits"),
    [
        pytest.param(("q", "a", "q", "a"), 3, [3, 4], id="all-of-it"),
        pytest.param(("q", "a", "q", ""), 3, [], id="never-answered"),
        pytest.param(("q", "a", "q", ""), 4, [], id="an-empty-answer"),
        pytest.param(("q", "", "q", "a"), 1, [1, 2, 3, 4], id="an-empty-one-that-something-follows"),
    ],
)
def test_what_says_nothing_does_not_wait(texts: tuple[str, ...], cut: int, waits: list[int]) -> None:
    path = tuple(turn(n, n - 1, text) for n, text in enumerate(texts, 1))
    shown, others = forked(path, (), cut)
    assert (numbers(shown), numbers(others)) == ([n for n in range(1, 5) if n < cut], waits)


@given(st.lists(st.tuples(st.sampled_from(("ask", "edit", "retry", "back", "on")), st.integers(0, 9)), max_size=25))
def test_whatever_is_done_every_answer_stays_and_survives_the_disk(done: list[tuple[str, int]]) -> None:
    now, said = UiState(chat=Chat(id="1" * 32)), set[str]()
    for step, (what, number) in enumerate(done):
        at = now.turns[number % len(now.turns)].number if now.turns else 0
        match what:
            case "ask":
                now = conversation.sent(now, f"q{step}", 1.0)
            case "edit" if at:
                question = at if next(t.role for t in now.turns if t.number == at) == "user" else now.turns[0].number
                now = conversation.sent(conversation.cut(now, question), f"q{step}", 1.0)
            case "retry":
                now = conversation.retried(now, 1.0)
            case "back" | "on":
                now = conversation.branched(now, at, -1 if what == "back" else 1)
        if now.answer is not None:
            now = conversation.stopped(with_answer(now, text=Clean(f"a{step}")))
            said.add(f"a{step}")
        every = (*now.turns, *now.others)
        assert {each.text for each in every if each.role == "assistant"} == said
        assert [each.parent for each in now.turns] == [0, *numbers(now.turns)][:-1] if now.turns else True
        for each in now.turns:
            assert each.number in siblings(now.turns, now.others, each.number)
    kept = chats.kept(now.chat, now.turns, 2.0, now.others)
    _, shown, others = chats.reopened(kept, 1)
    assert [each.text for each in shown] == [each.text for each in now.turns]
    assert sorted(each.text for each in others) == sorted(each.text for each in now.others)
    assert chats.kept(now.chat, shown, 2.0, others) == kept
