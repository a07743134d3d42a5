"""The rows' lengths, computed from compositions alone, equal those of mlx-lm's own caches."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import BatchKVCache, KVCache, RotatingKVCache

from core.engine.handle_shapes import HandleShape, after, sources, target, used_up
from core.engine.ring_work import Copy, Drop, Extend, Extract, Finalise, Keep, Merge, New, Op, PrepareRows, Trim
from core.errors import ProtocolError
from tests.support.compositions import Handles
from tests.support.search import SEARCH

pytestmark = pytest.mark.slow

WINDOW = 8
PLAIN = HandleShape((5,), 5)
BATCH = HandleShape((5, 3), 5, True)
PADDED = HandleShape((5, 3), 5, True, (0, 2))


class OneCache(Handles):
    """Compares the computed shape of rows with a cache of mlx-lm."""

    def forward(self, handle: int, length: int) -> None:
        keys = mx.zeros((len(self.rows[handle].tokens), 1, length, 1))
        self.caches[handle][0].update_and_fetch(keys, keys)

    def compare(self) -> None:
        for handle, rows in self.rows.items():
            (cache,) = self.caches[handle]
            assert list(rows.tokens) == (cache.offset.tolist() if rows.is_batch else [cache.offset])
            assert rows.is_trimmable(self.limit) == cache.is_trimmable()
            assert rows.width >= cache.size()


@given(st.randoms(use_true_random=False))
@settings(max_examples=20 * SEARCH)
@pytest.mark.parametrize(
    ("kind", "limit"),
    [pytest.param(KVCache, None, id="plain"), pytest.param(lambda: RotatingKVCache(WINDOW), WINDOW, id="window")],
)
def test_rows_count_as_mlx_lm_does(kind: Callable[[], Any], limit: int | None, rng: Random) -> None:
    handles = OneCache(limit, lambda: [kind()])
    for _ in range(15):
        handles.play(rng)
        handles.compare()


def test_padding_counts_until_it_is_finalised() -> None:
    rows = after(PrepareRows(1, lengths=(4, 1), right_padding=(0, 3)), [BATCH]).fed(4)
    assert rows == HandleShape((9, 7), 9, True, (0, 3))
    assert after(Finalise(1), [rows]) == HandleShape((9, 4), 9, True)


def test_padding_on_the_left_counts_less_than_nothing() -> None:
    rows = after(PrepareRows(1, left_padding=(3, 0)), [HandleShape((0, 0), 0, True)])
    cache = BatchKVCache([0, 0])
    cache.prepare(left_padding=[3, 0])
    assert list(rows.tokens) == cache.offset.tolist()
    assert rows._replace(tokens=(-3, -1)).position == 0
    assert rows.fed(5) == HandleShape((2, 5), 5, True)


@pytest.mark.parametrize(
    ("op", "held"),
    [
        pytest.param(Merge(9, ()), [], id="merge nothing"),
        pytest.param(Merge(9, (1, 2)), [PLAIN, BATCH], id="merge a batch"),
        pytest.param(Extend(1, 2), [PLAIN, BATCH], id="extend a plain row"),
        pytest.param(Extend(1, 2), [BATCH, PLAIN], id="extend with a plain row"),
        pytest.param(Extend(1, 2), [BATCH, PADDED], id="extend with what is padded"),
        pytest.param(Keep(1, ()), [BATCH], id="keep nothing"),
        pytest.param(Keep(1, (0, 2)), [BATCH], id="keep a row that is not there"),
        pytest.param(Keep(1, (-1,)), [BATCH], id="keep from behind"),
        pytest.param(Keep(1, (0,)), [PLAIN], id="keep of a plain row"),
        pytest.param(Keep(1, (0,)), [PADDED], id="keep of what is padded"),
        pytest.param(Extract(9, 1, 2), [BATCH], id="extract a row that is not there"),
        pytest.param(Extract(9, 1, 0), [PLAIN], id="extract from a plain row"),
        pytest.param(Trim(1, 6), [BATCH], id="trim too much"),
        pytest.param(Trim(1, -1), [BATCH], id="trim less than nothing"),
        pytest.param(PrepareRows(1, lengths=(1,)), [PLAIN], id="prepare a plain row"),
        pytest.param(PrepareRows(1, lengths=(1, 2, 3)), [BATCH], id="prepare another number of rows"),
        pytest.param(PrepareRows(1, left_padding=(1, 0)), [BATCH], id="pad on the left too late"),
        pytest.param(Finalise(1), [PLAIN], id="finalise a plain row"),
    ],
)
def test_what_cannot_be_done_is_refused(op: Op, held: list[HandleShape]) -> None:
    with pytest.raises(ProtocolError):
        after(op, held)


def test_what_operations_name() -> None:
    assert [target(op) for op in (New(3), Merge(3, (1,)), Copy(3, 1), Keep(3, (0,)), Drop(3))] == [3] * 5
    assert [sources(op) for op in (New(3), Drop(3), Merge(3, (1, 2)), Extend(3, 1), Extract(3, 1, 0), Trim(3, 1))] == [
        (), (), (1, 2), (3, 1), (1,), (3,)
    ]  # fmt: skip
    assert [used_up(op) for op in (Merge(3, (1, 2)), Extend(3, 1), Copy(3, 1), Trim(3, 1))] == [
        (1, 2),
        (3, 1),
        (),
        (3,),
    ]
