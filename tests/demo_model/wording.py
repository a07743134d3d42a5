"""A question as another person would type it: synonyms, a word more or less, a typo, no capitals."""

from __future__ import annotations

import re
from random import Random
from typing import Final

from tests.demo_model.facts import read_jsonl

# words that may replace each other in any question; none turns a question about one fact into one about another
_SYNONYMS: Final[dict[str, list[str]]] = {
    word: [other for other in group if other != word] for group in read_jsonl("synonyms.jsonl") for word in group
}
_LONGEST_FIRST: Final = "|".join(sorted(map(re.escape, _SYNONYMS), key=lambda word: -len(word)))
# the words after the program's name may be a command, which has no synonyms
_ANY_OF_THEM: Final = re.compile(rf"macluster(?: [a-z-]+){{0,2}}|(?<![\w-])({_LONGEST_FIRST})(?![\w-])")
_BEFORE: Final = (
    "hey, ", "hi, ", "hello, ", "please, ", "quick question: ", "ok, ", "so, ", "well, ", "one question: ", "tell me, ",
    "and ", "now, ", "please tell me: ", "hm, ", "sorry, ", "next question: ", "thanks. ", "cool. ", "good, ",
    "just wondering, ", "excuse me, ", "in macluster, ", "um, ", "i wonder, ", "say, ", "can you tell me: ", "help: ",
    "no idea: ", "stupid question, ", "my question is: ",
)  # fmt: skip
_AFTER: Final = (
    " please", " thanks", ", please", " in macluster", " in short", " exactly", " again", " for me", " then", " thx",
    " in one sentence", " briefly", " here", " with macluster", " in this program", " at all", " actually", " really",
    " anyway", " in general", " on my macs", " by the way", ", just curious", ". i am new here", ", i forgot",
    ", any idea", ". i am not sure", ". i could not find it", ". tell me", ". help me out", ", do you know",
    ". i want to understand it", ". no hurry", ". be honest", ". i have no idea",
)  # fmt: skip
_SMALL: Final = frozenset((
    "a", "an", "the", "is", "are", "was", "do", "does", "did", "i", "you", "me", "my", "to", "of", "in", "on", "for",
    "it", "this", "that", "what", "which", "how", "why", "can", "could", "should", "would", "will", "with", "be", "and",
    "or", "so", "there", "tell", "explain", "please",
))  # fmt: skip


def disturbed(question: str, rng: Random) -> str:
    """The question as a person in a hurry would type it."""
    loose = rng.random()
    if loose < 0.6:
        question = _reworded(question, rng, 0.5 if loose < 0.25 else 0.2)
    loose = rng.random()
    if loose < 0.08:
        question = _content_words(question)
    elif loose < 0.22:
        question = _one_less(question, rng)
    if rng.random() < 0.2:
        question = rng.choice(_BEFORE) + question
    if rng.random() < 0.2:
        body, mark = (question[:-1], "?") if question.endswith("?") else (question, "")
        question = body + rng.choice(_AFTER) + mark
    for share in (0.14, 0.05):
        if rng.random() < share:
            question = _typo(question, rng)
    question = _cased(question, rng)
    if rng.random() < 0.25:
        return question.rstrip("?.")
    return question if question.endswith("?") or rng.random() < 0.9 else f"{question}?"


def _reworded(question: str, rng: Random, share: float) -> str:
    """About `share` of the words and phrases that have synonyms become one of them."""

    def other(found: re.Match[str]) -> str:
        return rng.choice(_SYNONYMS[found[1]]) if found[1] and rng.random() < share else found[0]

    return _ANY_OF_THEM.sub(other, question)


def _content_words(question: str) -> str:
    """Only the words that carry the meaning, as in a search box; a question of few such words stays as it is."""
    words = [w for w in question.rstrip("?.").split(" ") if w.lower().strip(",") not in _SMALL]
    return " ".join(words) if len(words) > 2 else question


def _one_less(question: str, rng: Random) -> str:
    words = question.split(" ")
    spare = [i for i, w in enumerate(words) if w.lower() in _SMALL]
    if len(words) > 4 and spare:
        del words[rng.choice(spare)]
    return " ".join(words)


def _typo(text: str, rng: Random) -> str:
    """A letter is left out, doubled, or changes places with the next one."""
    words = text.split(" ")
    long = [i for i, w in enumerate(words) if len(w) > 4 and w.isalpha()]
    if not long:
        return text
    spot = rng.choice(long)
    word = words[spot]
    at = rng.randrange(1, len(word) - 1)
    a, b = word[at], word[at + 1]
    words[spot] = word[:at] + rng.choice((b, a + a + b, b + a)) + word[at + 2 :]
    return " ".join(words)


def _cased(question: str, rng: Random) -> str:
    style = rng.random()
    if style < 0.45:
        return question[:1].upper() + question[1:]
    if style < 0.48:
        return question.upper()
    return question.lower() if style < 0.75 else question
