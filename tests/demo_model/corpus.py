"""The corpus of the demo model: conversations of facts, small talk and questions that it cannot answer.

Everything follows from a seed and the files in `data`. No sentence comes from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from tests.demo_model import exercises
from tests.demo_model.facts import DATA, FIRST_QUESTION, Fact, all_facts, held_out, normalized, read_jsonl
from tests.demo_model.wording import disturbed

Turn = tuple[str, str]  # the user's text, and the answer
Conversation = list[Turn]

END: Final = "<|end|>"
USER: Final = "<|user|>"
ASSISTANT: Final = "<|assistant|>"
UNKNOWN: Final = "I don't know that. I am a small demo model and know only the basics of macluster. Press F1 for help."
_PER_FACT: Final = 2_000
# a fact with more questions than this is asked for more often
_USUAL_QUESTIONS: Final = 120
_OTHERS: Final = 160_000
_FOLLOW_UPS: Final = 30_000
_FIRST: Final = 1_500
_WHY: Final = (
    "and why?", "why?", "but why?", "why so?", "ok, and why?", "and why is that so?", "why though?", "explain why",
    "why is it done like that?", "what is the reason?", "tell me why", "hm, why?", "why that?", "how come?",
    "what's the reason for that?", "what is the point of that?", "tell me more", "more please", "go on", "and then?",
    "can you say more?", "anything else?", "explain that", "more about that", "and the reason?",
)  # fmt: skip
_AGAIN: Final = (
    "say that again", "again please", "what did you say?", "repeat that", "can you repeat that?", "once more",
    "pardon?", "sorry, what?", "could you say it again?", "i did not get that", "come again?", "one more time please",
    "i missed that", "repeat your answer",
)  # fmt: skip
_TERM: Final = ("and {}?", "what about {}?", "and what is {}?", "ok, and {}?", "how about {}?")


def generate(seed: int, scale: float = 1.0) -> list[Conversation]:
    """All training conversations in a seeded order, `scale` times as many as usual; none holds a held-out question."""
    rng = Random(seed)
    forbidden = {normalized(asked.question) for asked in held_out()}
    made = [c for c in _all(rng, scale) if forbidden.isdisjoint(normalized(question) for question, _ in c)]
    rng.shuffle(made)
    return made


def conversation_text(turns: Conversation) -> str:
    """A finished conversation as the chat template renders it."""
    return "".join(f"{USER}{question.strip()}{ASSISTANT}{answer.strip()}{END}" for question, answer in turns)


def _all(rng: Random, scale: float) -> Iterator[Conversation]:
    for fact in all_facts():
        asked = fact.asked
        for _ in range(round(scale * _PER_FACT * max(1, len(asked) / _USUAL_QUESTIONS))):
            yield [(disturbed(rng.choice(asked), rng), fact.answer)]
    for _ in range(round(scale * _FIRST)):
        yield [(FIRST_QUESTION, next(f for f in all_facts() if f.id == "split").answer)]
    other = other_turns(rng)
    for _ in range(round(scale * _OTHERS)):
        yield [next(other)]
    for _ in range(round(scale * _FOLLOW_UPS)):
        yield _follow_up(rng, other)


def other_turns(rng: Random) -> Iterator[Turn]:
    """Endless turns that ask for no fact."""
    outside, templates = read_jsonl("outside.jsonl"), json.loads((DATA / "outside_templates.json").read_text("utf-8"))
    small_talk = read_jsonl("small_talk.jsonl")

    def unknown(rng: Random) -> Turn:
        if rng.random() < 0.65:
            return rng.choice(outside), UNKNOWN
        return _filled(rng.choice(templates["templates"]), templates["words"], rng), UNKNOWN

    def talk(rng: Random) -> Turn:
        group = rng.choice(small_talk)
        return rng.choice(group["said"]), rng.choice(group["answers"])

    makers: tuple[tuple[Callable[[Random], Turn], float], ...] = (
        (unknown, 0.6), (talk, 0.12), (exercises.sums, 0.09), (exercises.counting, 0.03), (exercises.lists, 0.05),
        (exercises.stories, 0.05), (exercises.tables, 0.02), (exercises.code, 0.04),
    )  # fmt: skip
    kinds, weights = zip(*makers, strict=True)
    while True:
        [maker] = rng.choices(kinds, weights)
        question, answer = maker(rng)
        yield (question if maker is exercises.sums else disturbed(question, rng)), answer


def _filled(template: str, words: dict[str, list[str]], rng: Random) -> str:
    for name in words:
        while f"{{{name}}}" in template:
            template = template.replace(f"{{{name}}}", rng.choice(words[name]), 1)
    return template


def _follow_up(rng: Random, other: Iterator[Turn]) -> Conversation:
    """Two or three turns; later ones may need those before."""
    kind = rng.random()
    facts = all_facts()
    if kind < 0.4:
        fact = rng.choice([f for f in facts if f.why])
        return [_turn(fact, rng), (disturbed(rng.choice(_WHY), rng), fact.why)]
    first = _turn(rng.choice(facts), rng)
    if kind < 0.55:
        return [first, (disturbed(rng.choice(_AGAIN), rng), first[1])]
    if kind < 0.75:
        fact = rng.choice([f for f in facts if f.terms])
        return [first, (disturbed(rng.choice(_TERM).format(rng.choice(fact.terms)), rng), fact.answer)]
    if kind < 0.9:
        return [first, *[_turn(rng.choice(facts), rng) for _ in range(rng.choice((1, 2)))]]
    return [first, next(other)]


def _turn(fact: Fact, rng: Random) -> Turn:
    return disturbed(rng.choice(fact.asked), rng), fact.answer
