"""Scores the demo model: `python -m core.demo.training.evaluate DIR [--float DIR2] [--json]`.

Held-out questions were written by somebody who knew names and answers of the facts and no question of the training. An
answer is right if it holds the keywords of its fact. Of what is wrong only facts are named, so that nobody trains for
the questions: which fact was asked for, and whose answer came instead. All answers are greedy. It takes some minutes on
a CPU; the float32 model gets the held-out questions only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import batch_generate

from core.demo.training import corpus_talk as talk
from core.demo.training.all_facts import all_facts
from core.demo.training.corpus import HeldOut, held_out, held_out_follow_ups, held_out_keys, held_out_outside
from core.demo.training.corpus_disturbed import disturbed
from core.demo.training.corpus_outside import outside_question
from core.demo.training.corpus_phrases import FIRST_QUESTION
from core.demo.training.facts import holds, parts, right

MAX_TOKENS: Final = 200
_BATCH: Final = 64


class Score(NamedTuple):
    """Shares from 0 to 1 of one model. `keys`: questions for keys and commands; `low_keys`: those of them that it knows
    in less than nine of ten ways. `endings`: ended by EOS; `loops`: free prompts whose answer repeats itself.
    """

    held_out: float
    keys: float
    outside: float
    follow_ups: float
    sums: float
    endings: float
    loops: float
    first_answer: str
    wrong: tuple[str, ...]
    low_keys: tuple[str, ...]


class Said(NamedTuple):
    """One answer, and whether the model ended it."""

    text: str
    ended: bool


class Held(NamedTuple):
    """One held-out question, the answer, and the verdict."""

    asked: HeldOut
    said: Said
    right: bool


def answer_held_out(model: Any, tokenizer: Any, asked: Sequence[HeldOut]) -> list[Held]:
    """Held-out questions answered and judged."""
    facts = {f.name: f for f in all_facts()}
    answers = _answers(model, tokenizer, [[h.question] for h in asked])
    return [Held(h, a, right(facts[h.fact], a.text)) for h, a in zip(asked, answers, strict=True)]


def evaluate(directory: Path, questions: int | None, free: int) -> Score:
    """The score of the model in `directory` over `questions` held-out questions (None: all) and `free` free prompts."""
    model, tokenizer, *_ = mlx_lm.load(str(directory))
    held = answer_held_out(model, tokenizer, held_out()[:questions])
    keys = answer_held_out(model, tokenizer, held_out_keys()[:questions])
    foreign = _answers(model, tokenizer, [[q] for q in held_out_outside()[:questions]])
    follow_ups = held_out_follow_ups()[:questions]
    second = _answers(model, tokenizer, [[f.first, f.answer, f.question] for f in follow_ups])
    rng = Random(11)
    exercises = [talk.sums(rng) for _ in range(60)]
    solved = _answers(model, tokenizer, [[q] for q, _ in exercises])
    wild = _answers(model, tokenizer, [[q] for q in free_prompts(free)])
    [first] = _answers(model, tokenizer, [[FIRST_QUESTION]])
    everything = [*(h.said for h in (*held, *keys)), *second, *foreign, *wild]
    return Score(
        held_out=_share([h.right for h in held]),
        keys=_share([h.right for h in keys]),
        outside=_share(["don't know" in a.text for a in foreign]),
        follow_ups=_share([holds(a.text, f.keys) for f, a in zip(follow_ups, second, strict=True)]),
        sums=_share([_result(a.text) == _result(w) for (_, w), a in zip(exercises, solved, strict=True)]),
        endings=_share([a.ended for a in everything]),
        loops=_share([repeats(a.text) for a in wild]),
        first_answer=first.text,
        wrong=tuple(f"{h.asked.fact}: {_told(h.said.text)}" for h in (*held, *keys) if not h.right),
        low_keys=tuple(_low(keys)),
    )


def _told(answer: str) -> str:
    """The name of the fact whose answer that is, or whose answer it resembles most."""
    if "don't know" in answer:
        return "passed on"
    words = set(answer.lower().split())

    def alike(known: str) -> float:
        others = set(known.lower().split())
        return len(words & others) / max(1, len(words | others))

    return max((alike(known), f.name) for f in all_facts() for known in f.answers)[1]


def _low(keys: Sequence[Held]) -> Iterator[str]:
    for name in sorted({h.asked.fact for h in keys}):
        verdicts = [h.right for h in keys if h.asked.fact == name]
        if _share(verdicts) < 0.9:
            yield f"{name} {sum(verdicts)} of {len(verdicts)}"


def free_prompts(count: int) -> list[str]:
    """Prompts of all kinds, some of them nonsense: none may lead into a loop."""
    rng = Random(23)
    makers = [maker for maker, _ in talk.OTHERS]
    words = parts("layer|cat|why|7|studio|the|blue|please|key|run|of|and|trust|story|never|hop|table", "|")
    prompts = []
    for i in range(count):
        if i % 4 == 0:
            prompts.append(" ".join(rng.choices(words, k=rng.randrange(1, 12))))
        elif i % 4 == 1:
            prompts.append(outside_question(rng))
        else:
            prompts.append(disturbed(rng.choice(makers)(rng)[0], rng))
    return prompts


def repeats(text: str) -> bool:
    """Whether a piece of at least 12 characters stands three times in a row."""
    return any(
        text[i : i + width] * 3 == text[i : i + 3 * width]
        for width in range(12, min(80, len(text) // 3) + 1)
        for i in range(len(text) - 3 * width + 1)
    )


def _answers(model: Any, tokenizer: Any, conversations: Sequence[Sequence[str]]) -> list[Said]:
    found: list[Said] = []
    for part in _parts(conversations):
        prompts = [tokenizer.apply_chat_template(_messages(c), add_generation_prompt=True) for c in part]
        texts = batch_generate(model, tokenizer, prompts, max_tokens=MAX_TOKENS).texts
        found += [Said(text, len(tokenizer.encode(text)) < MAX_TOKENS - 10) for text in texts]
        mx.clear_cache()
    return found


def _parts(conversations: Sequence[Sequence[str]]) -> Iterator[Sequence[Sequence[str]]]:
    for start in range(0, len(conversations), _BATCH):
        yield conversations[start : start + _BATCH]


def _messages(turns: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]


def _result(answer: str) -> str:
    numbers = "".join(c if c.isdigit() else " " for c in answer).split()
    # "7 plus 5 is 12." and "That is 12: 7 + 5 = 12." are both right
    return " ".join(sorted(set(numbers)))


def _share(verdicts: Sequence[bool]) -> float:
    return sum(verdicts) / max(1, len(verdicts))


def _lines(score: Score) -> list[str]:
    shares = [f"{k} {v:.1%}" for k, v in score._asdict().items() if isinstance(v, float)]
    return [", ".join(shares), f"{FIRST_QUESTION}\n  -> {score.first_answer}"]


def main(arguments: list[str] | None = None) -> None:
    """The command line of the evaluation."""
    parser = argparse.ArgumentParser(prog="python -m core.demo.training.evaluate", description="Score the demo model.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--float", dest="exact", type=Path, help="the same weights in float32, to compare with")
    parser.add_argument("--questions", type=int, help="so many of each kind of question (default: all)")
    parser.add_argument("--free", type=int, default=200, help="free prompts (default %(default)s)")
    parser.add_argument("--wrong", action="store_true", help="of wrong answers: the fact, and whose answer came")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(arguments)
    score = evaluate(args.model, args.questions, args.free)
    exact = None
    if args.exact:
        model, tokenizer, *_ = mlx_lm.load(str(args.exact))
        exact = _share([h.right for h in answer_held_out(model, tokenizer, held_out()[: args.questions])])
    if args.json:
        print(json.dumps(score._asdict() | {"held_out_float32": exact}, indent=1))
        return
    print("\n".join(_lines(score)))
    if exact is not None:
        print(f"float32 {exact:.1%}: quantised loses {100 * (exact - score.held_out):.1f} points")
    if args.wrong:
        print("\n".join((*sorted(score.wrong), "keys and commands below 90 %:", *score.low_keys)))


if __name__ == "__main__":
    main()
