"""What mlx-lm's code for a family gets wrong, and no dry run can see.

tests/unit/models/test_atlas.py holds each list to what the families do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import mlx.nn as nn
from mlx_lm.models.cache import BatchRotatingKVCache

_BATCHED: Final = {"minimax_m3_vl": "its sparse attention counts blocks from the padding, not from a row's first token"}
_SEVERAL_TOKENS: Final = {"phi3small"}


def wrong_in_batches(model: nn.Module) -> str:
    """Why a row that shares a batch gets other logits than alone; empty where it does not."""
    return _BATCHED.get(_family(model), "")


def verifies_drafts(model: nn.Module) -> bool:
    """Whether several tokens of a row at once give the logits that they give one by one, so that one step can say which
    guesses of the next tokens are right.
    """
    return _family(model) not in _SEVERAL_TOKENS


def order_windows(windows: Iterable[Any]) -> None:
    """Before several tokens of each row come: have the oldest token of every full window of a batch stand first in it,
    as mlx-lm does just behind the mask that it makes for them. The mask takes that for granted, or it hides the oldest
    token of each row that is padded on the left.
    """
    for window in windows:
        if isinstance(window, BatchRotatingKVCache):
            window._temporal_order()


def _family(model: nn.Module) -> str:
    return type(model).__module__.rpartition(".")[2]
