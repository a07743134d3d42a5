"""Memory that layers of a model need on a Mac, in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from core.events import Peer, Stage
from core.models.files.layout import Layout
from core.models.slicing.split_profile import SplitProfile
from core.numbers import MOST
from core.plan.nearest_cuts import Overflow
from core.settings import DEFAULT_ROWS, FAR_BACK, MAX_DRAFT, PREFILL_CHUNK

# a growing cache is copied, and two layers are in flight at the same time
GROWING: Final = 2


class StageSizes(NamedTuple):
    """Sizes of a model with caches of `context` tokens, from its `profile` if it was examined, else approximate."""

    layout: Layout
    profile: SplitProfile | None
    context: int
    kv_bits: int | None  # None: the model's own
    chunk: int = PREFILL_CHUNK  # prompt tokens per step
    rows: int = DEFAULT_ROWS  # rows per decode step
    ranks: int = 1  # above 1: each Mac has its part of the layers
    head: str = ""  # device id of the Mac that runs the tokenizer

    def stage(self, peer: Peer, part: range, *, output: bool) -> Stage:
        return Stage(
            device_id=peer.device_id,
            peer=peer.name,
            start=part.start,
            stop=part.stop,
            weight_bytes=self._weight_bytes(part, output=output),
            kv_bytes=self.kv_bytes(part),
            budget_bytes=peer.budget_bytes,
            step_bytes=self.step_bytes(output=output),
            tokenizer_bytes=self._tokenizer_bytes(peer),
        )

    def layer_budget(self, peer: Peer) -> int:
        """The budget without the tokenizer, at least 1 byte of a budget that isn't empty."""
        return max(min(1, peer.budget_bytes), peer.budget_bytes - self._tokenizer_bytes(peer))

    def kv_bytes(self, part: range) -> int:
        caches = (self.profile or self.layout).caches
        return min(MOST, self._of_a_rank(sum(caches[layer].bytes_for(self.context, self.kv_bits) for layer in part)))

    def step_bytes(self, *, output: bool) -> int:
        step = self.layout.step
        layer = step.layer_bytes(self.chunk, min(self.context, FAR_BACK), quantised=bool(self.kv_bits))
        caches = (self.profile or self.layout).caches
        grown = max(cache.bytes_for(self.context, self.kv_bits) - cache.fixed_bytes for cache in caches)
        grown = self._of_a_rank(grown)
        logits = output * max(self.rows, 1 + MAX_DRAFT) * step.logit_bytes
        return min(MOST, max(layer + GROWING * grown, logits))

    def overflow(self, owners: Sequence[Peer], output: int) -> Overflow:
        """The bytes that don't fit, from running sums. `owners` are in layer order; number `output` has the head."""
        layout = self.layout
        inner = [layout.stage_bytes(i, i + 1, embed=False, output=False) for i in range(layout.layers)]
        kept = [self.kv_bytes(range(i, i + 1)) for i in range(layout.layers)]
        sums = [0, *accumulate(weights + kv for weights, kv in zip(inner, kept, strict=True))]
        ends = [
            layout.stage_bytes(0, 1, embed=i == 0, output=i == output)
            - inner[0]
            + self.step_bytes(output=i == output)
            + self._tokenizer_bytes(owner)
            for i, owner in enumerate(owners)
        ]

        def overflow(owner: int, start: int, stop: int) -> int:
            return max(0, sums[stop] - sums[start] + ends[owner] - owners[owner].budget_bytes)

        return overflow

    def _tokenizer_bytes(self, peer: Peer) -> int:
        return self.layout.tokenizer_bytes if peer.device_id == self.head else 0

    def _weight_bytes(self, part: range, *, output: bool) -> int:
        whole = self.layout.stage_bytes(part.start, part.stop, embed=part.start == 0, output=output)
        if self.ranks == 1:
            return whole
        layers = self.layout.stage_bytes(part.start, part.stop, embed=False, output=False)
        return whole - layers + self.layout.sharding.weights_on(self.ranks, layers)

    def _of_a_rank(self, cache_bytes: int) -> int:
        return cache_bytes if self.ranks == 1 else self.layout.sharding.caches_on(self.ranks, cache_bytes)
