"""What a fact is, and when an answer holds it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Literal, NamedTuple

Form = Literal["what", "key", "command", "pressed", "typed", "why", "how", "happens", "ask"]


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


def normal(question: str) -> str:
    """A question without marks and case, but the case of single letters, which are keys: what counts as the same."""
    kept = "".join(c if c.isalnum() or c in "+/-[]<>:^" else " " for c in question)
    return " ".join(word if len(word) == 1 and word not in "AI" else word.lower() for word in kept.split())


def parts(text: str, mark: str) -> tuple[str, ...]:
    """What stands in `text` between its marks, without what is empty."""
    return tuple(part.strip() for part in text.split(mark) if part.strip())


def key_pair(name: str, key: str, actions: str, effect: str, where: str = "", asks: str = "") -> tuple[Fact, Fact]:
    """Both directions: the key for an action, and what a key does. `actions` begin with a verb and are divided by "|";
    `effect` completes "It ...".
    """
    place = f" {where}" if where else ""
    hint = effect.split(",")[0].split(";")[0].split(":")[0]
    from_key = fact(
        f"does-{name}", "pressed", "|".join(dict.fromkeys(_spoken(key))), "",
        hint.lower(),
        f"{_spoken(key)[0]} {effect}{place}.",
        f"Pressing {_spoken(key)[0]}{place} {effect}.",
    )  # fmt: skip
    return key_for(name, key, actions, effect, where, asks), from_key


def _spoken(key: str) -> tuple[str, ...]:
    """How people write a key, the usual way first: for one letter, case is all there is to tell it by."""
    if key.startswith("Ctrl+"):
        return key, key.lower(), f"ctrl-{key[-1].lower()}", f"control {key[-1].lower()}", f"^{key[-1].lower()}"
    if len(key) == 1 and key.isupper():
        return f"Shift+{key}", key, f"capital {key}", f"the letter {key}"
    if len(key) == 1 and key.isalpha():
        return key, f"the letter {key}", f"small {key}"
    return key, key.lower()


def key_for(name: str, key: str, actions: str, effect: str, where: str = "", asks: str = "") -> Fact:
    """The key for an action only: of a key that does something else elsewhere."""
    first = actions.split("|")[0]
    place = f" {where}" if where else ""
    word = key if len(key) == 1 else key.lower()
    return fact(
        f"key-{name}", "key", actions, asks, f"{word},press/does that/the key is",
        f"Press {key}{place} to {first}.",
        f"{key} does that{place}: it {effect}.",
        f"The key is {key}{place}.",
    )  # fmt: skip


def command_pair(name: str, command: str, actions: str, effect: str, key: str, asks: str = "") -> tuple[Fact, Fact]:
    """Both directions: the command for an action, and what a command does. `key` is what `effect` must hold."""
    first = actions.split("|")[0]
    core = " ".join(takewhile(lambda word: word.islower() and word != "-o", command.split()))
    to_command = fact(
        f"command-{name}", "command", actions, asks, core if " " in core else f"`{core}`",
        f"Type `{command}` to {first}.",
        f"The command is `{command}`: it {effect}.",
        f"`{command}` does that.",
    )  # fmt: skip
    spoken = core if " " in core else f"{core} without a command|plain {core}"
    from_command = fact(
        f"does-command-{name}", "typed", spoken, "",
        key,
        f"`{command}` {effect}.",
        f"It {effect}.",
    )  # fmt: skip
    return to_command, from_command
