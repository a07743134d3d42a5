"""A conversation is a tree: a question that is asked anew and an answer that is asked for again stand beside the one
before. What is shown of it is one path, from its first message to its last; the others wait.

`shown` is that path, each message the `parent` of the next; `others` are all the other messages, by their numbers. What
was said stays; only what says nothing goes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from tui.state.turns import Turn

Turns = tuple[Turn, ...]


def forked(shown: Turns, others: Turns, number: int) -> tuple[Turns, Turns]:
    """End the path before message `number`; what was there is kept in `others`."""
    at = next((n for n, turn in enumerate(shown) if turn.number == number), len(shown))
    waiting = list(others)
    for turn in reversed(shown[at:]):
        is_answer = turn.role == "assistant" and turn.text != ""
        if is_answer or any(other.parent == turn.number for other in waiting):
            waiting.append(turn)
    return shown[:at], _in_order(waiting)


def siblings(shown: Turns, others: Turns, number: int) -> tuple[int, ...]:
    parent = next((turn.parent for turn in shown if turn.number == number), None)
    return tuple(turn.number for turn in _in_order([*shown, *others]) if turn.parent == parent)


def turned(shown: Turns, others: Turns, number: int, step: int) -> tuple[Turns, Turns]:
    """Switch to the version `step` further at message `number`, and follow its newest messages. Nothing changes at the
    ends.
    """
    beside = siblings(shown, others, number)
    if number not in beside or not 0 <= (at := beside.index(number) + step) < len(beside):
        return shown, others
    every = {turn.number: turn for turn in _in_order([*shown, *others])}
    newest = {turn.parent: turn.number for turn in every.values()}
    path = [turn.number for turn in shown if turn.number < number]
    path.append(beside[at])
    while path[-1] in newest:
        path.append(newest[path[-1]])
    return tuple(every[n] for n in path), tuple(turn for n, turn in every.items() if n not in path)


def crossing(shown: Turns, others: Turns, number: int = 0) -> int:
    """The message where versions can be switched: `number`, else the last one that has versions; 0 for none."""
    asked = [turn.number for turn in reversed(shown) if turn.number == number or not number]
    return next((each for each in asked if len(siblings(shown, others, each)) > 1), 0)


def place_words(shown: Turns, others: Turns, number: int) -> str:
    """Which version a message is: "2/3 ‹ ›"; "" if it has none."""
    beside = siblings(shown, others, number)
    return f"{beside.index(number) + 1}/{len(beside)} ‹ ›" if len(beside) > 1 else ""


def _in_order(turns: Iterable[Turn]) -> Turns:
    return tuple(sorted(turns, key=lambda turn: turn.number))
