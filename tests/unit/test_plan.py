import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadBudget, DoesNotFit, NoPeers, TooManyPeers
from core.events import Peer
from core.plan.fit import make_plan
from core.plan.split import split_layers
from core.settings import GB


@pytest.mark.parametrize(
    ("layers", "weights", "counts"),
    [
        (40, [22, 14], [24, 16]),
        (24, [22, 14], [15, 9]),
        (30, [22, 14], [18, 12]),
        (12, [64, 32, 16], [7, 3, 2]),
        (5, [1, 1], [3, 2]),
        (4, [1000, 1, 1], [2, 1, 1]),
        (7, [1], [7]),
        (3, [5, 5, 5], [1, 1, 1]),
    ],
)
def test_split_goldens(layers: int, weights: list[int], counts: list[int]) -> None:
    assert [len(r) for r in split_layers(layers, weights)] == counts


@pytest.mark.parametrize(
    ("layers", "weights", "error"),
    [(4, [], NoPeers), (2, [1, 1, 1], TooManyPeers), (4, [1, 0], BadBudget), (4, [1, -3], BadBudget)],
)
def test_split_errors(layers: int, weights: list[int], error: type[Exception]) -> None:
    with pytest.raises(error):
        split_layers(layers, weights)


@given(st.lists(st.integers(1, 512), min_size=1, max_size=12), st.integers(0, 120))
def test_split_covers_every_layer_once_in_proportion(weights: list[int], more: int) -> None:
    layers = len(weights) + more
    parts = split_layers(layers, weights)
    assert [i for r in parts for i in r] == list(range(layers))
    assert all(len(r) >= 1 for r in parts)
    if all(layers * w >= sum(weights) for w in weights):
        assert all(abs(len(r) - layers * w / sum(weights)) < 1 for r, w in zip(parts, weights, strict=True))


class FlatLayout:
    """Ten layers of 1 GB, embedding 2 GB, output 3 GB, 0.1 GB of KV a layer at any context."""

    layers = 10

    def stage_bytes(self, start: int, stop: int, *, embed: bool, output: bool) -> int:
        return (stop - start + 2 * embed + 3 * output) * GB

    def kv_bytes(self, start: int, stop: int, context: int) -> int:
        return (stop - start) * GB // 10


def peer(name: str, gigabytes: int) -> Peer:
    return Peer(device_id=name * 3, name=name, budget_bytes=gigabytes * GB)


def test_plan_puts_embedding_and_output_on_the_head() -> None:
    plan = make_plan(
        model="m",
        fingerprint="f",
        layout=FlatLayout(),
        peers=[peer("a", 24), peer("b", 12)],
        context=64,
        plan_gen=3,
    )
    assert [(s.start, s.stop, s.weight_bytes // GB) for s in plan.stages] == [(0, 7, 12), (7, 10, 3)]
    assert plan.output == "aaa"
    assert plan.topology == "private"


def test_a_model_that_does_not_fit_is_refused_with_the_missing_gigabytes_and_the_mac() -> None:
    with pytest.raises(DoesNotFit, match=r"needs 6\.6 GB more on a \(16\.0 GB needed in all, 9\.0 GB usable on 2 Macs"):
        make_plan(
            model="m",
            fingerprint="f",
            layout=FlatLayout(),
            peers=[peer("a", 5), peer("b", 4)],
            context=64,
            plan_gen=1,
        )
