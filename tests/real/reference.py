"""Greedy answers of mlx-lm in one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import generate_step

from core.settings import PREFILL_CHUNK


def greedy(model: Path, prompt: Sequence[int], tokens: int) -> list[int]:
    """The first tokens of the answer to a prompt of token ids, also beyond an end token."""
    loaded: Any = mlx_lm.load(str(model))[0]
    steps = generate_step(mx.array(list(prompt)), loaded, max_tokens=tokens, prefill_step_size=PREFILL_CHUNK)
    return [int(token) for token, _ in steps]
