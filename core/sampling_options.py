"""How tokens are chosen: every option, its limits, and the words that people meet it by.

The command line, the form of the sampling screen and the check of what is typed are made of this declaration, and the
one value goes from there to `core.engine.sampling`. A new option is a field here and its use there.
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
    """How people set the field that is annotated with it. `help`: what `--name` does on the command line; `label` and
    `hint`: its line in the form, and what can be typed there. Without these words it is not set there. `short`: what
    the title of a chat calls it, where that is not the label.
    """

    help: str = ""
    label: str = ""
    hint: str = ""
    short: str = ""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a token is chosen, by mlx-lm's own samplers and logits processors; the defaults take the most likely one.

    `seed` makes it repeatable. `top_k` 0, `top_p` 0 and `min_p` 0 cut nothing off. A penalty looks at as many of the
    last tokens, the prompt's among them, as its context says. `logit_bias` is added, by token id. `logprobs`: tell the
    logarithm of the probability of every token, and of so many of the most likely ones.
    """

    temperature: Annotated[
        float,
        msgspec.Meta(ge=0, le=5),
        Option(
            "0: the most likely one (default); the higher, up to 5, the less likely ones come through",
            "Temperature",
            "0 to 5; 0: the likeliest token each time",
            short="temp",
        ),
    ] = 0.0
    top_p: Annotated[
        Share,
        Option(
            "leave out all but the most likely that together have this probability; 0: off",
            "Top-p",
            "0 to 1; likeliest that sum to it; 0: off",
        ),
    ] = 0.0
    top_k: Annotated[
        Size, Option("leave out all but the N most likely; 0: off", "Top-k", "this many of the likeliest; 0: off")
    ] = 0
    min_p: Annotated[
        Share,
        Option(
            "leave out what is less likely than this share of the most likely; 0: off",
            "Min-p",
            "0 to 1; share of the likeliest; 0: off",
        ),
    ] = 0.0
    repetition_penalty: Annotated[
        Repetition,
        Option(
            f"above 1 makes the last {PENALTY_CONTEXT} tokens less likely to come again, below 1 more likely",
            "Repetition penalty",
            "to 10; above 1 repeats less; empty: off",
            short="repetition",
        ),
    ] = None
    repetition_context: Positive = PENALTY_CONTEXT
    presence_penalty: Annotated[
        Penalty, Option(f"subtract X, -2 to 2, from the logits of the last {PENALTY_CONTEXT} tokens")
    ] = None
    presence_context: Positive = PENALTY_CONTEXT
    frequency_penalty: Annotated[
        Penalty, Option(f"subtract X, -2 to 2, each time that a token is among the last {PENALTY_CONTEXT}")
    ] = None
    frequency_context: Positive = PENALTY_CONTEXT
    logit_bias: Annotated[Bias, Option("add VALUE, -100 to 100, to the logit of token ID; can be repeated")] = {}
    seed: Annotated[
        Seed, Option("choose the same tokens every time", "Seed", "the same tokens each time; empty: chance")
    ] = None
    logprobs: Annotated[
        Logprobs, Option(f"with --json: how likely each token was, and the N likeliest, up to {MAX_LOGPROBS}")
    ] = None

    @property
    def lookback(self) -> int:
        """So many of the last tokens count for which one is next; 0 where none does."""
        penalties = (
            (self.repetition_penalty, self.repetition_context),
            (self.presence_penalty, self.presence_context),
            (self.frequency_penalty, self.frequency_context),
        )
        return max((context for penalty, context in penalties if penalty), default=0)


class OptionField(NamedTuple):
    """A field that people can set: `kind` is float, int, str, tuple or dict."""

    name: str
    kind: type
    option: Option


@cache
def option_fields(struct: type[msgspec.Struct]) -> tuple[OptionField, ...]:
    """The fields of `struct` that are annotated with an `Option`, in order."""
    hints = get_type_hints(struct, include_extras=True).items()
    return tuple(
        OptionField(name, _kind(hint), option)
        for name, hint in hints
        for option in get_args(hint)[1:]
        if isinstance(option, Option)
    )


def _kind(hint: Any) -> type:
    """What holds its values where it has any: of `Annotated[Annotated[float, …] | None, …]` float."""
    arguments = get_args(hint)
    if get_origin(hint) in (dict, tuple) or not arguments:
        kind: type = get_origin(hint) or hint
        return kind
    return _kind(arguments[0])
