"""Faults of mlx-lm's code for some families that no dry run reveals.

tests/unit/models/test_atlas.py checks each list against the families.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import mlx.nn as nn
from mlx_lm.models.cache import BatchRotatingKVCache

_BATCHED: Final = {"minimax_m3_vl": "its sparse attention counts blocks from the padding, not from a row's first token"}
_SEVERAL_TOKENS: Final = {"phi3small"}


def wrong_in_batches(model: nn.Module) -> str:
    """Why a row's logits differ in a shared batch; "" if they don't."""
    return _BATCHED.get(_family(model), "")


def verifies_drafts(model: nn.Module) -> bool:
    """Whether several tokens of a row at once give the same logits as one by one, so that one step verifies a draft."""
    return _family(model) not in _SEVERAL_TOKENS


def order_windows(windows: Iterable[Any]) -> None:
    """Move the oldest token of every full window of a batch to its front, before a step of several tokens per row.

    mlx-lm does so only after it makes the mask for these tokens, which then hides the oldest token of each row that is
    padded on the left.
    """
    for window in windows:
        if isinstance(window, BatchRotatingKVCache):
            window._temporal_order()


def _family(model: nn.Module) -> str:
    return type(model).__module__.rpartition(".")[2]
