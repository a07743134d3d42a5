"""Sampling options: each option, its limits, and its help texts.

The command line, the sampling screen and the input checks are built from this declaration; `core.engine.sampling`
applies the value. A new option is one field here and its use there.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from core.numbers import MOST, Positive, Size

PENALTY_CONTEXT: Final = 20  # as mlx-lm
MAX_LOGPROBS: Final = 20

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)] | None
Repetition = Annotated[float, msgspec.Meta(gt=0, le=10)] | None
Logprobs = Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None
Seed = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None
Bias = dict[Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)], Annotated[float, msgspec.Meta(ge=-100, le=100)]]


class Option(NamedTuple):
    """Texts of a field that users can set; without texts it can't be set there."""

    help: str = ""  # on the command line
    label: str = ""  # in the form
    hint: str = ""  # what to type in the form
    short: str = ""  # in the chat's title, if not the label


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a token is chosen, by mlx-lm's samplers and logits processors. The defaults choose the most likely token.

    `top_k` 0, `top_p` 0 and `min_p` 0 are off. A penalty covers the last `..._context` tokens, the prompt included.
    """

    temperature: Annotated[
        float,
        msgspec.Meta(ge=0, le=5),
        Option(
            "0: always the most likely token (default); higher values, up to 5, are more random",
            "Temperature",
            "0–5; 0 = always the most likely word",
            short="temp",
        ),
    ] = 0.0
    top_p: Annotated[
        Share,
        Option(
            "keep only the most likely tokens with this total probability; 0: off",
            "Top-p",
            "0–1; most likely up to this sum; 0 = off",
        ),
    ] = 0.0
    top_k: Annotated[
        Size, Option("keep only the N most likely tokens; 0: off", "Top-k", "consider only the top K (0 = off)")
    ] = 0
    min_p: Annotated[
        Share,
        Option(
            "drop tokens below this share of the top token's probability; 0: off",
            "Min-p",
            "0–1; share of the most likely; 0 = off",
        ),
    ] = 0.0
    repetition_penalty: Annotated[
        Repetition,
        Option(
            f"above 1 makes the last {PENALTY_CONTEXT} tokens less likely to repeat, below 1 more likely",
            "Repetition penalty",
            "0–10, above 1 = less repetition",
            short="repetition",
        ),
    ] = None
    repetition_context: Positive = PENALTY_CONTEXT
    presence_penalty: Annotated[
        Penalty, Option(f"subtract X (-2 to 2) from the logits of the last {PENALTY_CONTEXT} tokens")
    ] = None
    presence_context: Positive = PENALTY_CONTEXT
    frequency_penalty: Annotated[
        Penalty, Option(f"subtract X (-2 to 2) for each time a token occurs in the last {PENALTY_CONTEXT}")
    ] = None
    frequency_context: Positive = PENALTY_CONTEXT
    logit_bias: Annotated[Bias, Option("add VALUE, -100 to 100, to the logit of token ID; can be repeated")] = {}
    seed: Annotated[
        Seed, Option("choose the same tokens every time", "Seed", "same number, same answer; empty = random")
    ] = None
    logprobs: Annotated[
        Logprobs, Option(f"with --json: logprobs of each token and the N most likely ones, up to {MAX_LOGPROBS}")
    ] = None

    @property
    def lookback(self) -> int:
        """How many of the last tokens influence the next one; 0 without penalties."""
        penalties = (
            (self.repetition_penalty, self.repetition_context),
            (self.presence_penalty, self.presence_context),
            (self.frequency_penalty, self.frequency_context),
        )
        return max((context for penalty, context in penalties if penalty), default=0)


class OptionField(NamedTuple):
    """A field that users can set."""

    name: str
    kind: type  # float, int, str, tuple or dict
    option: Option


@cache
def option_fields(struct: type[msgspec.Struct]) -> tuple[OptionField, ...]:
    hints = get_type_hints(struct, include_extras=True).items()
    return tuple(
        OptionField(name, _kind(hint), option)
        for name, hint in hints
        for option in get_args(hint)[1:]
        if isinstance(option, Option)
    )


def _kind(hint: Any) -> type:
    """The type of the values: float for `Annotated[Annotated[float, …] | None, …]`."""
    arguments = get_args(hint)
    if get_origin(hint) in (dict, tuple) or not arguments:
        kind: type = get_origin(hint) or hint
        return kind
    return _kind(arguments[0])
