"""What mlx-lm's code for a family gets wrong, and no dry run can see.

tests/unit/models/test_atlas.py holds each list to what the families do.
"""

from __future__ import annotations

from typing import Final

import mlx.nn as nn

_BATCHED: Final = {"minimax_m3_vl": "its sparse attention counts blocks from the padding, not from a row's first token"}
_SEVERAL_TOKENS: Final = {"phi3small"}


def wrong_in_batches(model: nn.Module) -> str:
    """Why a row that shares a batch gets other logits than alone; empty where it does not."""
    return _BATCHED.get(_family(model), "")


def checks_guesses(model: nn.Module) -> bool:
    """Whether several tokens of a row at once give the logits that they give one by one, so that one step can say which
    guesses of the next tokens are right.
    """
    return _family(model) not in _SEVERAL_TOKENS


def _family(model: nn.Module) -> str:
    return type(model).__module__.rpartition(".")[2]
