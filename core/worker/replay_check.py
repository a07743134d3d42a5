"""Whether what is read again behind a loss says what it said the first time: logits are kept, and compared."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import mlx.core as mx

from core.engine.requests import Request
from core.numbers import MOST
from core.worker.messages import Replayed

MOST_ROWS: Final = 64
_STEPS: Final = 2  # the node may not have heard of the last one


class ReplayCheck:
    """Logits of the last steps of each row that has not ended, by the index of the first token that they chose; they
    outlive the plan under which they were computed.
    """

    def __init__(self) -> None:
        self._kept: dict[str, deque[tuple[int, Sequence[mx.array]]]] = {}

    def keep(self, request_id: str, index: int, logits: Sequence[mx.array]) -> None:
        """Those, each [vocabulary], by which a step chooses token `index` of its answer, and the ones behind it; of the
        row that began first none are kept where there are too many.
        """
        if request_id not in self._kept and len(self._kept) >= MOST_ROWS:
            del self._kept[next(iter(self._kept))]
        self._kept.setdefault(request_id, deque(maxlen=_STEPS)).append((index, logits))

    def forget(self, request_id: str) -> None:
        """It has ended."""
        self._kept.pop(request_id, None)

    def wants(self, request: Request) -> bool:
        """Whether those are kept that chose the last token of what is written."""
        return self._first(request) is not None

    def _first(self, request: Request) -> mx.array | None:
        last = len(request.written) - 1
        steps = self._kept.get(request.request_id, ())
        return next((logits[last - start] for start, logits in steps if 0 <= last - start < len(logits)), None)

    def compare(self, request: Request, logits: mx.array) -> Replayed:
        """Those [vocabulary] of the second time with those that are kept, which `wants` said; once."""
        first = self._first(request)
        assert first is not None
        self.forget(request.request_id)
        first, again = first.astype(mx.float32), logits.astype(mx.float32)
        differ = first != again
        largest: Any = mx.abs(mx.where(differ, first - again, 0.0)).max().item()
        mismatches: Any = differ.sum().item()
        return Replayed(
            request_id=request.request_id,
            tokens=len(request.beginning) - 1,
            logits=first.size,
            mismatches=mismatches,
            difference=min(largest, MOST) if math.isfinite(largest) else MOST,
            same_token=bool((mx.argmax(first) == mx.argmax(again)).item()),
        )
