"""The corpus of the demo model: conversations made of facts and small talk, and questions kept back for the evaluation.

Everything follows from a seed. No sentence comes from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from core.demo.training import corpus_talk as talk
from core.demo.training.all_facts import all_facts
from core.demo.training.corpus_disturbed import disturbed
from core.demo.training.corpus_phrases import FIRST_QUESTION, templated
from core.demo.training.facts import Fact, normal, parts

Conversation = list[talk.Turn]

# written by somebody who knew names and answers of the facts, and no question of the training
_HELD_OUT: Final = Path(__file__).with_name("held_out.txt")
_HELD_OUT_KEYS: Final = Path(__file__).with_name("held_out_keys.txt")
_HELD_OUTSIDE: Final = Path(__file__).with_name("held_out_outside.txt")

_PER_FACT: Final = 830
# a fact with more questions than that is asked for more often: those are the ones that are mixed up
_QUESTIONS: Final = 60
_OTHERS: Final = 170_000
_FOLLOW_UPS: Final = 40_000
# how often the question of the demo is answered in the words that README shows
_FIRST: Final = 1500
# of the questions of a fact that has both: whole ones are as people ask, templates tell its words apart
_WHOLE: Final = 0.7

_WHY: Final = parts(
    "and why?|why?|but why?|why so?|ok, and why?|and why is that so?|what for?|why though?|why is it done like that?|"
    "what is the reason?|explain why|tell me why|hm, why?|why that?|but for what?|can you say why?|and the reason?|"
    "what's the reason for that?|why is it so?|i wonder why|what is the point of that?|how come?",
    "|",
)
_AGAIN: Final = parts(
    "say that again|again please|what did you say?|repeat that|can you repeat that?|once more|sorry, what?|pardon?|"
    "could you say it again?|i did not get that|come again?|one more time please|i missed that|repeat your answer",
    "|",
)
_KEY_AGAIN: Final = parts(
    "which key again?|what was the key?|the key again?|which key was it?|just the key please|sorry, which key?|"
    "what key did you say?|i forgot the key|tell me the key again|the shortcut again?|say the key once more|"
    "i forgot which key that was|remind me, which key?|remind me which one to press|what do i press again?|"
    "only the key, please|what was that key?|repeat the key|the key, please|so which key is it?|and the key was?|"
    "could you remind me of that shortcut?|name the key again|which one do i press?|the hotkey once more?",
    "|",
)
_COMMAND_AGAIN: Final = parts(
    "which command again?|what was the command?|the command again?|just the command please|what do i type again?|"
    "sorry, which command?|i forgot the command|tell me the command again|what was it that i type?|repeat the command|"
    "remind me of the command|say the command once more|only the command, please|so which command is it?",
    "|",
)
_MAC: Final = parts(
    "and the {m}?|what about the {m}?|and {m}?|and what about {m}?|how about the {m}?|and for the {m}?|"
    "same question for the {m}|the {m} too?|ok, and the {m}?|what of the {m}?|and on the {m}?|tell me for the {m}",
    "|",
)
_WORD: Final = parts("and {s}?|what about {s}?|and what is {s}?|ok, and {s}?|how about {s}?", "|")
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
    """A question that somebody wrote who did not know the training's questions, and the name of its fact."""

    question: str
    fact: str


def held_out() -> list[HeldOut]:
    """Questions about all facts that training never sees."""
    return _read(_HELD_OUT)


def held_out_keys() -> list[HeldOut]:
    """Questions for each key and command that training never sees."""
    return _read(_HELD_OUT_KEYS)


def held_out_outside() -> list[str]:
    """Questions from outside that training never sees."""
    return [line.strip() for line in _HELD_OUTSIDE.read_text("utf-8").splitlines() if line.strip()]


def _read(file: Path) -> list[HeldOut]:
    known = {f.name for f in all_facts()}
    lines = (line.partition(": ") for line in file.read_text("utf-8").splitlines())
    return [HeldOut(question.strip(), name) for name, _, question in lines if name in known]


def held_out_follow_ups(seed: int = 7) -> list[FollowUp]:
    """Two-turn conversations whose second question has a phrasing that training never saw."""
    rng = Random(seed)
    facts = all_facts()
    found = [FollowUp(_plain(f), f.answers[0], rng.choice(HELD_WHY), _content(f.why)) for f in facts if f.why]
    for kind in ("mem", "layers"):
        macs = {m: f for f in facts for m in ("studio", "mbp", "mini") if f.name == m + kind}
        for one, other in (("studio", "mini"), ("mini", "mbp"), ("mbp", "studio")):
            first, second = macs[one], macs[other]
            found += [FollowUp(first.asks[0], first.answers[0], t.format(m=other), second.keys) for t in HELD_MAC]
    found += [FollowUp(_plain(f), f.answers[0], rng.choice(HELD_KEY), f.keys) for f in facts if f.form == "key"]
    return found


def generate(seed: int, scale: float = 1.0, outside: int = 0) -> list[Conversation]:
    """All training conversations in a seeded order, `scale` times as many, and so many more with a question from
    `outside`; none holds a held-out question.
    """
    rng = Random(seed)
    asked = [h.question for h in (*held_out(), *held_out_keys())]
    asked += [*(f.question for f in held_out_follow_ups()), *held_out_outside()]
    forbidden = set(map(normal, asked))
    made = [c for c in _all(rng, scale, outside) if not any(normal(question) in forbidden for question, _ in c)]
    rng.shuffle(made)
    return made


def _all(rng: Random, scale: float, outside: int) -> Iterator[Conversation]:
    facts = all_facts()
    for found in facts:
        for _ in range(round(scale * _PER_FACT * max(1, len(found.asks) / _QUESTIONS))):
            yield [_turn(found, rng)]
    makers, weights = zip(*talk.OTHERS, strict=True)
    for maker in (*rng.choices(makers, weights, k=round(scale * _OTHERS)), *[talk.outside] * outside):
        question, answer = maker(rng)
        yield [(disturbed(question, rng) if maker is not talk.sums else question, answer)]
    for _ in range(round(scale * _FIRST)):
        yield [(FIRST_QUESTION, next(f for f in facts if f.name == "split").answers[0])]
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
    templates = _templated(found)
    is_whole = found.asks and (not templates or rng.random() < _WHOLE)
    return disturbed(rng.choice(found.asks if is_whole else templates), rng), rng.choice(found.answers)


@cache
def _templated(found: Fact) -> list[str]:
    return templated(found)


def _plain(found: Fact) -> str:
    return next(iter((*found.asks, *templated(found))))


_COMMON: Final = frozenset(
    parts(
        "about|above|after|again|answer|because|before|between|cannot|could|every|first|layers|macluster|model|other|"
        "several|should|since|still|their|there|these|thing|think|those|token|tokens|while|which|would",
        "|",
    )
)


def _content(sentence: str) -> tuple[str, ...]:
    """The two longest unusual words of a sentence, for a check by keywords."""
    words = sorted({w.strip(".,;:").lower() for w in sentence.split()} - _COMMON, key=lambda w: (-len(w), w))
    return tuple(words[:2])
