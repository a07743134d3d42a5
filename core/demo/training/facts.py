"""What a fact is, and when an answer holds it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

Form = Literal["what", "key", "command", "why", "how", "happens", "ask"]


class Fact(NamedTuple):
    """One thing to know. `form` says which question templates take `slots`; `asks` are whole questions.

    Every answer holds all `keys`; a key is a text in lower case, or several with "/" between, of which one is enough.
    `why` answers "and why?" in the next turn; empty where that question makes no sense.
    """

    name: str
    form: Form
    slots: tuple[str, ...]
    asks: tuple[str, ...]
    keys: tuple[str, ...]
    answers: tuple[str, ...]
    why: str = ""


def fact(name: str, form: Form, slots: str, asks: str, keys: str, *answers: str, why: str = "") -> Fact:
    """A fact whose slots and asks are divided by "|", and whose keys are divided by ","."""
    return Fact(name, form, parts(slots, "|"), parts(asks, "|"), parts(keys, ","), answers, why)


def right(found: Fact, answer: str) -> bool:
    """Whether `answer` holds all keys of `found`."""
    return holds(answer, found.keys)


def holds(answer: str, keys: Iterable[str]) -> bool:
    """Whether `answer` holds all `keys`."""
    return all(any(_holds(answer, part) for part in (key.split("/") if len(key) > 1 else (key,))) for key in keys)


def _holds(answer: str, part: str) -> bool:
    """A single character counts as a word of its own and in its own case, for y and Y are two keys."""
    if len(part) == 1:
        return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", answer) is not None
    return part in answer.lower()


def parts(text: str, mark: str) -> tuple[str, ...]:
    """What stands in `text` between its marks, without what is empty."""
    return tuple(part.strip() for part in text.split(mark) if part.strip())
