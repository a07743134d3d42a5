"""Prompts for made models, and fixed chunks for rings in benches that don't compare prefill."""

from __future__ import annotations

from typing import Final

from tests.benches.made_models import FIRST_TOKEN, VOCABULARY
from tests.support.worker_ring import Settings

# chunk size and window do not adapt, so every run reads its prompt in the same way
STEADY: Final = Settings(chunk=64, window=3, adapts=False)


def a_prompt(tokens: int, number: int) -> tuple[int, ...]:
    """A prompt of `tokens` tokens that shares no prefix with that of another `number`, so none of it is cached."""
    return tuple(FIRST_TOKEN + (number + 7 * at) % (VOCABULARY - FIRST_TOKEN) for at in range(tokens))
