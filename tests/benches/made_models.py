"""The models of benches: random weights, mostly of a llama, wide enough that compute dominates."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import mlx.core as mx
import msgspec

from core.bench.results import positive
from tests.benches.results import Result, print_result
from tests.support.maker import make_model

HEAD_DIM: Final = 64
VOCABULARY: Final = 2048
FIRST_TOKEN: Final = 101  # of prompts
CIRCLE: Final = 32  # tokens of a text that repeats; the vocabulary is a multiple of it
STRIDE: Final = 619  # between two tokens of a text that never repeats
WORDS: Final = 24  # tokens of a text that wanders and misleads
DTYPES: Final = ("float32", "bfloat16", "float16")

_EMBEDDING: Final = "model.embed_tokens.weight"
_HEAD: Final = "lm_head.weight"
_ADDING: Final = ("o_proj.weight", "down_proj.weight")  # weights whose output is added to the stream

R = TypeVar("R", bound=Result)

Weights = dict[str, mx.array]  # by their names


class ModelSize(msgspec.Struct, frozen=True):
    """`layers` layers, `hidden` wide, with weights of `dtype`."""

    layers: int
    hidden: int
    dtype: str

    @property
    def cut(self) -> int:
        """Where two stages of as many layers meet."""
        return self.layers // 2

    def __str__(self) -> str:
        return f"a {self.dtype} model of {self.layers} layers, {self.hidden} wide"


def make(folder: Path, sizes: ModelSize, family: str = "llama") -> Path:
    """A model in a folder of its own inside `folder`; its greedy answers wander."""
    directory, heads = folder / family, sizes.hidden // HEAD_DIM
    make_model(
        directory, family, layers=sizes.layers, hidden=sizes.hidden, intermediate=3 * sizes.hidden, head_dim=HEAD_DIM,
        vocab=VOCABULARY, heads=heads, kv_heads=heads, dtype=sizes.dtype,
    )  # fmt: skip
    return directory


def make_circling(folder: Path, sizes: ModelSize) -> Path:
    """Like `make`, but its answers repeat themselves.

    After a token comes the next one of its `circle`, because the head looks for the embedding of the one before. The
    layers take as long as before, and add nothing.
    """
    before = mx.array([at - at % CIRCLE + (at - 1) % CIRCLE for at in range(VOCABULARY)])

    def changes(weights: Weights) -> Weights:
        return _silent(weights) | {_HEAD: weights[_EMBEDDING][before]}

    return _changed(make(folder, sizes), changes)


def make_striding(folder: Path, sizes: ModelSize, rate: float = 1.0) -> Path:
    """Like `make_circling`, but its circle has nearly all tokens, so that no answer comes to its end.

    For a part of the tokens, 1 - `rate`, its next token is wrong: a draft for a model that is always right.
    """
    random, said = Random(0), list(range(FIRST_TOKEN, VOCABULARY))
    follows = [said[(at + STRIDE) % len(said)] for at in range(len(said))]
    wrong = [at for at in range(len(said)) if random.random() >= rate]
    before = list(range(VOCABULARY))
    for at, token in enumerate(follows):
        before[token] = said[at]
    for at, other in zip(wrong, [*wrong[1:], *wrong[:1]], strict=True):
        before[follows[other]] = said[at]
    return _changed(
        make(folder, sizes), lambda weights: _silent(weights) | {_HEAD: weights[_EMBEDDING][mx.array(before)]}
    )


def make_babbling(folder: Path, sizes: ModelSize) -> Path:
    """Like `make`, but its answers wander through few tokens: earlier successors of a token predict the next badly."""
    token = mx.arange(VOCABULARY)[:, None]
    is_said = (token >= FIRST_TOKEN) & (token < FIRST_TOKEN + WORDS)
    return _changed(make(folder, sizes), lambda weights: {_HEAD: mx.where(is_said, weights[_HEAD], 0)})


def _silent(weights: Weights) -> Weights:
    return {name: mx.zeros_like(array) for name, array in weights.items() if name.endswith(_ADDING)}


def _changed(directory: Path, changes: Callable[[Weights], Weights]) -> Path:
    """The model with other values for some of its weights, as `changes` gives them from all."""
    files: dict[Path, Any] = {file: mx.load(str(file)) for file in sorted(directory.glob("*.safetensors"))}
    weights = {name: array for part in files.values() for name, array in part.items()}
    mx.eval(weights)  # the file can't be read while it is written
    changed = changes(weights)
    for file, part in files.items():
        mx.save_safetensors(str(file), part | {n: changed[n] for n in part if n in changed}, {"format": "mlx"})
    return directory


def circle(number: int) -> tuple[int, ...]:
    """The tokens that come back, unlike those of another `number`."""
    first = FIRST_TOKEN - FIRST_TOKEN % CIRCLE + CIRCLE * (number % (VOCABULARY // CIRCLE - FIRST_TOKEN // CIRCLE))
    return tuple(range(first, first + CIRCLE))


def add_sizes(parser: argparse.ArgumentParser, default: ModelSize) -> None:
    """The options that `sizes_of` reads."""
    parser.add_argument("--layers", type=at_least_two, default=default.layers, help="layers (default %(default)s)")
    parser.add_argument("--hidden", type=_width, default=default.hidden, help="the model's width (default %(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default=default.dtype, help="of its weights (default %(default)s)")


def sizes_of(args: argparse.Namespace) -> ModelSize:
    """The sizes chosen on the command line."""
    return ModelSize(args.layers, args.hidden, args.dtype)


def run_sized(
    name: str,
    description: str,
    measure: Callable[[int, int, ModelSize], R],
    describe: Callable[[R], str],
    default: ModelSize,
    arguments: Sequence[str] | None,
    *,
    runs: int = 5,
    tokens: int = 48,
) -> int:
    """The command line of a bench whose `measure` takes runs, tokens and sizes. Returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"macluster bench {name}", description=description)
    parser.add_argument("--runs", type=positive, default=runs, help="runs for the median (default %(default)s)")
    parser.add_argument("--tokens", type=at_least_two, default=tokens, help="tokens per answer (default %(default)s)")
    add_sizes(parser, default)
    return print_result(parser, lambda args: measure(args.runs, args.tokens, sizes_of(args)), describe, arguments)


def at_least_two(text: str) -> int:
    """A whole number of at least two, for argparse."""
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("must be at least 2")
    return number


def _width(text: str) -> int:
    number = int(text)
    if number < HEAD_DIM or number % HEAD_DIM:
        raise argparse.ArgumentTypeError(f"must be a multiple of {HEAD_DIM}")
    return number
