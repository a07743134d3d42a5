"""The models of benches: random weights of a llama, wide enough that computing is what takes time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from core.models.maker import make_model

HEAD_DIM: Final = 64
VOCABULARY: Final = 2048
FIRST_TOKEN: Final = 101  # of prompts
DTYPES: Final = ("float32", "bfloat16", "float16")


class Sizes(msgspec.Struct, frozen=True):
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


def make(folder: Path, sizes: Sizes) -> Path:
    """A model in a folder of its own inside `folder`."""
    directory, heads = folder / "model", sizes.hidden // HEAD_DIM
    make_model(
        directory, "llama", layers=sizes.layers, hidden=sizes.hidden, intermediate=3 * sizes.hidden, head_dim=HEAD_DIM,
        vocab=VOCABULARY, heads=heads, kv_heads=heads, dtype=sizes.dtype,
    )  # fmt: skip
    return directory


def add_sizes(parser: argparse.ArgumentParser, default: Sizes) -> None:
    """The options that `sizes_of` reads."""
    parser.add_argument("--layers", type=at_least_two, default=default.layers, help="layers (default %(default)s)")
    parser.add_argument("--hidden", type=_width, default=default.hidden, help="the model's width (default %(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default=default.dtype, help="of its weights (default %(default)s)")


def sizes_of(args: argparse.Namespace) -> Sizes:
    """What the person chose."""
    return Sizes(args.layers, args.hidden, args.dtype)


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
