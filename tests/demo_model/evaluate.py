"""Scores the demo model on questions that training never saw: `python -m tests.demo_model.evaluate [MODEL] [--wrong]`.

An answer is right if it holds the keywords of its fact; a question that the model cannot know, if it answers "I don't
know". All answers are greedy. It takes a few minutes on a CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import batch_generate

from core.demo import DEMO_MODEL
from tests.demo_model.corpus import other_turns
from tests.demo_model.exercises import sums
from tests.demo_model.facts import HeldOut, all_facts, held_out, holds

MAX_TOKENS: Final = 200
_BATCH: Final = 64
_HELD_WHY: Final = ("why is that?", "for what reason?")


class Verdict(NamedTuple):
    """One held-out question, the answer, and whether it is right."""

    asked: HeldOut
    answer: str
    right: bool


def answer_held_out(model: Any, tokenizer: Any, asked: Sequence[HeldOut]) -> list[Verdict]:
    """Held-out questions answered and judged."""
    keywords = {fact.id: fact.keywords for fact in all_facts()}
    answers = _answers(model, tokenizer, [[h.question] for h in asked])
    return [
        Verdict(h, text, holds(text, keywords[h.fact] if h.fact else ("don't know",)))
        for h, text in zip(asked, answers, strict=True)
    ]


def repeats(text: str) -> bool:
    """Whether a piece of at least 12 characters stands three times in a row."""
    return any(
        text[i : i + width] * 3 == text[i : i + 3 * width]
        for width in range(12, min(80, len(text) // 3) + 1)
        for i in range(len(text) - 3 * width + 1)
    )


def main() -> None:
    """Print the scores; with --wrong, the ids of the facts whose questions failed, so that no one trains for them."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo_model.evaluate", description="Score the demo model.")
    parser.add_argument("model", type=Path, nargs="?", default=DEMO_MODEL)
    parser.add_argument("--wrong", action="store_true", help="of each wrong answer: the fact, and the answer")
    args = parser.parse_args()
    model, tokenizer, *_ = mlx_lm.load(str(args.model))
    verdicts = answer_held_out(model, tokenizer, held_out())
    _print("facts", [v.right for v in verdicts if v.asked.fact])
    _print("outside", [v.right for v in verdicts if not v.asked.fact])

    explained = [fact for fact in all_facts() if fact.why]
    chats = [(fact, why) for fact in explained for why in _HELD_WHY]
    told = _answers(model, tokenizer, [[fact.questions[0], fact.answer, why] for fact, why in chats])
    _print("follow-ups", [text == fact.why for text, (fact, _) in zip(told, chats, strict=True)])
    exercises = [sums(Random(seed)) for seed in range(60)]
    solved = _answers(model, tokenizer, [[question] for question, _ in exercises])
    _print("sums", [_numbers(text) == _numbers(right) for text, (_, right) in zip(solved, exercises, strict=True)])
    free = _answers(model, tokenizer, [[question] for question, _ in islice(other_turns(Random(23)), 200)])
    everything = [*(v.answer for v in verdicts), *told, *free]
    _print("without a loop", [not repeats(text) for text in everything])
    _print("ended", [len(tokenizer.encode(text)) < MAX_TOKENS for text in everything])
    if args.wrong:
        print("\n".join(f"{v.asked.fact}: {v.answer}" for v in verdicts if not v.right))


def _print(name: str, verdicts: Sequence[bool]) -> None:
    print(f"{name}: {sum(verdicts)} of {len(verdicts)} ({sum(verdicts) / len(verdicts):.1%})", flush=True)


def _answers(model: Any, tokenizer: Any, conversations: Sequence[Sequence[str]]) -> list[str]:
    """The answer to the last turn of each conversation, whose turns are the user's and the model's in alternation."""
    found: list[str] = []
    for start in range(0, len(conversations), _BATCH):
        prompts = [
            tokenizer.apply_chat_template(
                [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)],
                add_generation_prompt=True,
            )
            for turns in conversations[start : start + _BATCH]
        ]
        found += batch_generate(model, tokenizer, prompts, max_tokens=MAX_TOKENS).texts
        mx.clear_cache()
    return found


def _numbers(text: str) -> set[str]:
    # "7 plus 5 is 12." and "That is 12: 7 + 5 = 12." are both right
    return set("".join(c if c.isdigit() else " " for c in text).split())


if __name__ == "__main__":
    main()
