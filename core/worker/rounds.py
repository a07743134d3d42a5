"""The head's rounds: tokens through its own layers and, where the model is split, once round the ring."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from core.link.arrays import decode_arrays
from core.link.frames import FrameType
from core.worker.desk import Desk
from core.worker.messages import StageSample
from core.worker.ring import PREFILL, Ring, read_samples
from core.worker.stage import Stage

STEP_S = 120.0


class Rounds:
    """The rounds of one request. Its methods raise LinkError when the ring breaks, StageFailed when a stage does."""

    def __init__(self, request: bytes, stage: Stage, ring: Ring | None, desk: Desk) -> None:
        self._request = request
        self._stage = stage
        self._ring = ring
        self._desk = desk

    def begin(self) -> None:
        """Fresh caches here; the other stages begin with the first frame."""
        self._stage.begin()
        if self._ring:
            self._ring.begin()

    def prefill(self, part: list[int]) -> None:
        """A chunk of the prompt behind which more tokens come: nobody needs its logits."""
        if not self._ring:
            self._stage.whole(part)
            return
        self._ring.renew_worn(self._request, self._desk)
        position = self._stage.position
        boundary = self._stage.embed(part)
        self._ring.send_activation(self._request, position, len(part), boundary, PREFILL)
        self._ring.expect(FrameType.ACK, self._request, position, self._desk, STEP_S)

    def step(self, token: int) -> mx.array:
        """Logits [1, vocabulary] after `token`."""
        if not self._ring:
            return self._stage.whole([token])
        self._ring.renew_worn(self._request, self._desk)
        position = self._stage.position
        boundary = self._stage.embed([token])
        self._ring.send_activation(self._request, position, 1, boundary, 0)
        frame = self._ring.expect(FrameType.ACTIVATION, self._request, position, self._desk, STEP_S)
        return self._stage.logits(decode_arrays(frame.body))

    def gather(self) -> list[StageSample]:
        """What every stage has spent so far, in ring order; nothing where there is no ring."""
        return self._collect(FrameType.TELEMETRY)

    def end(self) -> list[StageSample]:
        """The last round: every stage forgets the request and tells what it has spent."""
        return self._collect(FrameType.SESSION_END)

    def _collect(self, kind: FrameType) -> list[StageSample]:
        if not self._ring:
            return []
        self._ring.send_samples(kind, self._request, [])
        frame = self._ring.expect(kind, self._request, 0, self._desk, STEP_S)
        # the head's sample was taken before it waited for the frame; take it anew
        samples = [self._ring.sample(), *read_samples(frame)[1:]]
        self._ring.heed(samples)
        return samples


def chunks(tokens: list[int], size: int) -> Iterator[list[int]]:
    """`tokens` in parts of `size`, the last one shorter."""
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]
