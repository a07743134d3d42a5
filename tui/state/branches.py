"""A conversation as a tree: a repeated question or answer is another version next to the first.

`shown` is the path on screen, each message the `parent` of the next; `others` are all other messages, by number. Only
messages without text are removed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from tui.state.turns import Turn

Turns = tuple[Turn, ...]


def forked(shown: Turns, others: Turns, number: int) -> tuple[Turns, Turns]:
    """End the path before message `number`; what was there is kept in `others`."""
    at = next((n for n, turn in enumerate(shown) if turn.number == number), len(shown))
    waiting, followed = list(others), {other.parent for other in others}
    for turn in reversed(shown[at:]):
        is_answer = turn.role == "assistant" and turn.text != ""
        if is_answer or turn.number in followed:
            waiting.append(turn)
            followed.add(turn.parent)
    return shown[:at], by_number(waiting)


def siblings(shown: Turns, others: Turns, number: int) -> tuple[int, ...]:
    parent = next((turn.parent for turn in reversed(shown) if turn.number == number), None)
    beside = (turn.number for turn in others if turn.parent == parent)
    return () if parent is None else tuple(sorted((number, *beside)))


def turned(shown: Turns, others: Turns, number: int, step: int) -> tuple[Turns, Turns]:
    """Switch to the version `step` further at message `number`, with its newest messages. The ends change nothing."""
    versions = siblings(shown, others, number)
    if number not in versions or not 0 <= (at := versions.index(number) + step) < len(versions):
        return shown, others
    every = {turn.number: turn for turn in by_number([*shown, *others])}
    newest = {turn.parent: turn.number for turn in every.values()}
    path = [turn.number for turn in shown if turn.number < number]
    path.append(versions[at])
    while path[-1] in newest:
        path.append(newest[path[-1]])
    is_shown = set(path)
    return tuple(every[n] for n in path), tuple(turn for n, turn in every.items() if n not in is_shown)


def crossing(shown: Turns, others: Turns, number: int = 0) -> int:
    """The message where versions can be switched: `number`, else the last one that has versions; 0 for none."""
    parents = {turn.parent for turn in others}
    asked = (turn for turn in reversed(shown) if turn.number == number or not number)
    return next((turn.number for turn in asked if turn.parent in parents), 0)


def place_words(shown: Turns, others: Turns, number: int) -> str:
    """The version of a message, as "2/3 ‹ ›"; "" if it has only one."""
    versions = siblings(shown, others, number)
    return f"{versions.index(number) + 1}/{len(versions)} ‹ ›" if len(versions) > 1 else ""


def by_number(turns: Iterable[Turn]) -> Turns:
    return tuple(sorted(turns, key=lambda turn: turn.number))
