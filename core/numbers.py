"""The bounds of numbers that come from elsewhere: within them, sums, JSON, clocks and screens take each of them.

Whatever decodes the words of another Mac or of a client has no number without bounds (tests/unit/test_numbers.py).
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
