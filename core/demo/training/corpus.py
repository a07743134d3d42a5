"""The corpus of the demo model: conversations made of facts and small talk, and questions kept back for the evaluation.

Everything follows from a seed. No sentence comes from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from core.demo.training import corpus_talk as talk
from core.demo.training.all_facts import all_facts
from core.demo.training.corpus_phrases import FIRST_QUESTION, disturbed, held_out_questions, normal, training_questions
from core.demo.training.facts import Fact

Conversation = list[talk.Turn]

_PER_FACT: Final = 1000
_OTHERS: Final = 100_000
_FOLLOW_UPS: Final = 50_000
_FIRST: Final = 300

_WHY: Final = ("and why?", "why?", "but why?", "why so?", "ok, and why?", "and why is that so?", "what for?",
"why though?",
               "why is it done like that?", "what is the reason?", "explain why", "tell me why",
               "hm, why?")  # fmt: skip
_AGAIN: Final = ("say that again", "again please", "what did you say?", "repeat that", "can you repeat that?",
"once more",
                 "sorry, what?", "pardon?", "could you say it again?", "i did not get that")  # fmt: skip
_KEY_AGAIN: Final = ("which key again?", "what was the key?", "the key again?", "which key was it?",
"just the key please",
                     "sorry, which key?", "what key did you say?")  # fmt: skip
_COMMAND_AGAIN: Final = ("which command again?", "what was the command?", "the command again?",
"just the command please",
                         "what do i type again?", "sorry, which command?")  # fmt: skip
_MAC: Final = ("and the {m}?", "what about the {m}?", "and {m}?", "and what about {m}?", "how about the {m}?",
               "and for the {m}?", "same question for the {m}", "the {m} too?", "ok, and the {m}?")  # fmt: skip
_WORD: Final = ("and {s}?", "what about {s}?", "and what is {s}?", "ok, and {s}?", "how about {s}?")
HELD_WHY: Final = ("why is that?", "for what reason?")
HELD_MAC: Final = ("and how is it with the {m}?", "now the {m} please")
HELD_KEY: Final = ("remind me of the key", "the key was which one?")


class FollowUp(NamedTuple):
    """Two turns: after `first` was asked and answered, `question` is right if the answer holds all `keys`."""

    first: str
    answer: str
    question: str
    keys: tuple[str, ...]


class HeldOut(NamedTuple):
    """A question that training never saw, the name of its fact, and whether it was written for this fact alone."""

    question: str
    fact: str
    written: bool


def held_out(count: int | None = None) -> list[HeldOut]:
    """`count` of the held-out questions, or all, in an order of chance that is always the same.

    About a fifth is written by hand; the others are templates that training never saw, with words that it did see.
    """
    found = [HeldOut(question, f.name, question in f.asks) for f in all_facts() for question in held_out_questions(f)]
    Random(5).shuffle(found)
    return found[:count]


def held_out_outside(count: int, seed: int = 7) -> list[str]:
    """Questions from outside, in phrasings that training never saw."""
    rng = Random(seed)
    return [talk.outside_question(rng, talk.HELD_OUTSIDE) for _ in range(count)]


def held_out_follow_ups(seed: int = 7) -> list[FollowUp]:
    """Two-turn conversations whose second question has a phrasing that training never saw."""
    rng = Random(seed)
    facts = all_facts()
    found = [
        FollowUp(held_out_questions(f)[0], f.answers[0], rng.choice(HELD_WHY), _content(f.why)) for f in facts if f.why
    ]
    for kind in ("mem", "layers"):
        macs = {m: f for f in facts for m in ("studio", "mbp", "mini") if f.name == m + kind}
        for one, other in (("studio", "mini"), ("mini", "mbp"), ("mbp", "studio")):
            first, second = macs[one], macs[other]
            found += [FollowUp(first.asks[0], first.answers[0], t.format(m=other), second.keys) for t in HELD_MAC]
    found += [
        FollowUp(f.asks[0] if f.asks else f.slots[0], f.answers[0], rng.choice(HELD_KEY), f.keys)
        for f in facts
        if f.form == "key"
    ]
    return found


def generate(seed: int, scale: float = 1.0) -> list[Conversation]:
    """All training conversations in a seeded order, `scale` times as many; none holds a held-out question."""
    rng = Random(seed)
    forbidden = {normal(h.question) for h in held_out()}
    made = [c for c in _all(rng, scale) if not any(normal(question) in forbidden for question, _ in c)]
    rng.shuffle(made)
    return made


def _all(rng: Random, scale: float) -> Iterator[Conversation]:
    facts = all_facts()
    for found in facts:
        questions = training_questions(found)
        for _ in range(round(scale * _PER_FACT)):
            yield [(disturbed(rng.choice(questions), rng), rng.choice(found.answers))]
    makers, weights = zip(*talk.OTHERS, strict=True)
    for maker in rng.choices(makers, weights, k=round(scale * _OTHERS)):
        question, answer = maker(rng)
        yield [(disturbed(question, rng) if maker is not talk.sums else question, answer)]
    for _ in range(round(scale * _FIRST)):
        yield [(FIRST_QUESTION, rng.choice(next(f for f in facts if f.name == "split").answers))]
    for _ in range(round(scale * _FOLLOW_UPS)):
        yield _follow_up(rng, facts)


def _follow_up(rng: Random, facts: tuple[Fact, ...]) -> Conversation:
    kind = rng.random()
    if kind < 0.4:
        found = rng.choice([f for f in facts if f.why])
        return [_turn(found, rng), (disturbed(rng.choice(_WHY), rng), found.why)]
    if kind < 0.55:
        suffix = rng.choice(("mem", "layers"))
        names = rng.sample(("studio", "mbp", "mini"), rng.choice((2, 3)))
        macs = [next(f for f in facts if f.name == name + suffix) for name in names]
        further = [
            (disturbed(rng.choice(_MAC).format(m=name), rng), rng.choice(f.answers))
            for name, f in zip(names[1:], macs[1:], strict=True)
        ]
        return [_turn(macs[0], rng), *further]
    if kind < 0.75:
        form = rng.choice(("key", "command"))
        found = rng.choice([f for f in facts if f.form == form])
        question = rng.choice(_KEY_AGAIN if form == "key" else _COMMAND_AGAIN)
        return [_turn(found, rng), (disturbed(question, rng), found.answers[-1])]
    if kind < 0.88:
        one, two = rng.sample([f for f in facts if f.form == "what"], 2)
        question = rng.choice(_WORD).format(s=rng.choice(two.slots))
        return [_turn(one, rng), (disturbed(question, rng), rng.choice(two.answers))]
    question, answer = _turn(rng.choice(facts), rng)
    return [(question, answer), (disturbed(rng.choice(_AGAIN), rng), answer)]


def _turn(found: Fact, rng: Random) -> talk.Turn:
    return disturbed(rng.choice(training_questions(found)), rng), rng.choice(found.answers)


_COMMON: Final = frozenset(
    [
        "about",
        "above",
        "after",
        "again",
        "answer",
        "because",
        "before",
        "between",
        "cannot",
        "could",
        "every",
        "first",
        "layers",
        "macluster",
        "model",
        "other",
        "several",
        "should",
        "should",
        "since",
        "still",
        "their",
        "there",
        "these",
        "thing",
        "think",
        "those",
        "token",
        "tokens",
        "while",
        "which",
        "would",
    ]
)


def _content(sentence: str) -> tuple[str, ...]:
    """The two longest unusual words of a sentence, for a check by keywords."""
    words = sorted({w.strip(".,;:").lower() for w in sentence.split()} - _COMMON, key=lambda w: (-len(w), w))
    return tuple(words[:2])
