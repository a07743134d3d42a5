"""The facts that the demo model knows, the questions about them, and the test whether an answer is right."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

DATA: Final = Path(__file__).with_name("data")
FIRST_QUESTION: Final = "How does macluster split a model?"
# how people ask for the meaning of a term
_TERM_QUESTIONS: Final = (
    "what is {}?", "what's {}?", "whats {}", "what is {} in macluster?", "explain {}", "explain {} to me",
    "tell me about {}", "can you explain {}?", "what do you mean by {}?", "what does {} mean?", "define {}", "{}?",
    "{}", "meaning of {}", "describe {}", "i don't understand {}", "what exactly is {}?",
    "give me a short definition of {}", "so what is {}?", "help me understand {}", "say what {} is",
    "what should i know about {}?", "{}, what is that?",
    "in one sentence, what is {}?", "remind me what {} is", "could you explain {}?", "what are {}?", "and what is {}?",
    "what does {} mean here?", "do you know what {} is?", "how do you define {}?", "what about {}?",
    "i have never heard of {}", "what is {} about?", "tell me what {} means", "i want to know what {} is",
)  # fmt: skip

# how people ask how to do something
_ACTION_QUESTIONS: Final = (
    "how do i {}?", "how can i {}?", "how to {}?", "how to {}", "{}", "{}?", "i want to {}", "i'd like to {}",
    "what do i do to {}?", "what must i do to {}?", "how does one {}?", "can i {}?", "where do i {}?",
    "how would i {}?", "what are the steps to {}?", "can you tell me how to {}?", "tell me how to {}",
    "explain how to {}", "help me {}", "show me how to {}", "is there a way to {}?", "what is the way to {}?",
    "i don't know how to {}", "please {}", "how should i {}?", "is it possible to {}?", "what do i press to {}?",
    "how do you {}?", "i need to {}", "let me {}", "could you explain how to {}?", "what is the best way to {}?",
    "how is it done to {}?", "i am trying to {}", "how do we {}?", "what should i do to {}?", "ok, how do i {}?",
    "so how do i {}?", "and how do i {} here?",
)  # fmt: skip


class Fact(msgspec.Struct, frozen=True):
    """One thing that the model knows."""

    id: str
    answer: str
    # a right answer holds each of them: lower case; "/" divides alternatives
    keywords: tuple[str, ...]
    questions: tuple[str, ...]
    # names of the thing, as in "what is {term}?"
    terms: tuple[str, ...] = ()
    # the action it explains, as in "how do i {action}?"
    actions: tuple[str, ...] = ()
    # the answer to "and why?" and "tell me more" in the next turn; may be empty
    why: str = ""

    @property
    def asked(self) -> tuple[str, ...]:
        """All questions about it, those about its terms and actions included."""
        terms = (question.format(term) for term in self.terms for question in _TERM_QUESTIONS)
        actions = (question.format(action) for action in self.actions for question in _ACTION_QUESTIONS)
        return (*self.questions, *terms, *actions)


class HeldOut(NamedTuple):
    """A question that training never sees."""

    fact: str | None  # id of the fact it asks for; None: the model should say that it does not know
    question: str


def read_jsonl(name: str) -> list[Any]:
    """The values of a data file, one a line."""
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


@cache
def all_facts() -> tuple[Fact, ...]:
    """Every fact, in the order of the file."""
    return tuple(msgspec.convert(line, Fact) for line in read_jsonl("facts.jsonl"))


def held_out() -> list[HeldOut]:
    """Questions for the evaluation."""
    return [HeldOut(**line) for line in read_jsonl("held_out.jsonl")]


def holds(answer: str, keywords: Iterable[str]) -> bool:
    """Whether `answer` holds all `keywords`."""
    return all(any(part in answer.lower() for part in keyword.split("/")) for keyword in keywords)


def normalized(question: str) -> str:
    """The words of a question without marks and case: questions with the same words count as the same."""
    return " ".join("".join(c if c.isalnum() or c in "+-" else " " for c in question.lower()).split())
