"""Grammars over a vocabulary of bytes: each byte is the token of the same id, and 256 ends an answer."""

from __future__ import annotations

from typing import Final

from core.engine.constraints import Grammars
from core.models.text.vocabulary import Vocabulary

END: Final = 256
OTHER_END: Final = 257
THINK: Final = 258
THOUGHT: Final = 259
SIZE: Final = 270

BYTES: Final = Grammars(
    lambda: Vocabulary([bytes([n]) for n in range(256)] + [b""] * (SIZE - 256), frozenset({THINK, THOUGHT})), SIZE
)
