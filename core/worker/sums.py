"""Sums over the ranks of MLX's ring, small ones in half the steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from core.plan.all_reduce import is_gathered
from core.worker.group_init import Group


def gather_sums(own: Group) -> Callable[[], None]:
    """Replace `mx.distributed.all_sum`, which mlx-lm's layers call, by a gather over the group `own` where
    `is_gathered` allows it; the returned function undoes that. Every rank adds in the same order, so all get the same
    numbers.
    """
    ring_sum, ranks = mx.distributed.all_sum, own.size()

    def all_sum(x: mx.array, *, group: Group | None = None, stream: Any = None) -> mx.array:
        if group is not own or not is_gathered(x.nbytes, ranks):
            return ring_sum(x, group=group, stream=stream)
        return mx.distributed.all_gather(x[None], group=group, stream=stream).sum(0)

    mx.distributed.all_sum = all_sum
    return partial(setattr, mx.distributed, "all_sum", ring_sum)
