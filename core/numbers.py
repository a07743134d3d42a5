"""Bounds of numbers from outside, chosen so that sums, JSON, clocks and screens can hold them.

Every number decoded from another Mac or a client has bounds (tests/unit/test_numbers.py checks it).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

MOST: Final = (1 << 53) - 1  # every JSON reader has these whole
Size = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # seconds since the epoch
Logprob = Annotated[float, msgspec.Meta(ge=-1e38, le=1e9)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e15)]  # per second
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
