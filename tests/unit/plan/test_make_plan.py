from itertools import combinations, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadBudget, DoesNotFit, NoPeers, TooManyPeers, UnsupportedModel
from core.events import WireType
from core.models.files.cache_size import CacheSize
from core.models.files.layout import Layout
from core.plan.assign_layers import split_layers
from core.plan.make_plan import gigabytes, make_plan, with_verification
from core.plan.nearest_cuts import nearest_cuts
from core.plan.preview import preview_of
from core.requests.plans import PlanPreview, PlanRequest
from core.settings import CHUNK_BYTES, GB
from tests.support.planning import FLAT, peer, planned, profile
from tui.cli.plan import plan_facts, plan_lines


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


def test_plan_puts_embedding_and_output_on_the_head() -> None:
    plan = make_plan(
        model="m",
        fingerprint="f",
        layout=FLAT,
        peers=[peer("a", 24), peer("b", 12)],
        context=64,
        plan_gen=3,
    )
    assert [(s.start, s.stop, s.weight_bytes // GB) for s in plan.stages] == [(0, 7, 12), (7, 10, 3)]
    assert plan.output == "aaa"
    assert plan.topology == "private"


# a model whose tokenizer takes 8 GB
WORDY = msgspec.structs.replace(FLAT, tokenizer_bytes=8 * GB)


def test_the_tokenizer_takes_memory_of_the_head_which_holds_fewer_layers() -> None:
    wish: Any = {"model": "m", "fingerprint": "f", "layout": WORDY, "context": 64, "plan_gen": 3}
    plan = make_plan(**wish, peers=[peer("a", 24), peer("b", 12)])
    assert [(s.stop - s.start, s.tokenizer_bytes // GB) for s in plan.stages] == [(6, 8), (4, 0)]
    assert plan.head.needed_bytes == (6 + 2 + 3 + 8) * GB + 6 * GB // 10
    assert "tokenizer" in plan_lines(plan)[1]
    free = [facts["free_bytes"] for facts in plan_facts(plan)["stages"]]
    assert free == [24 * GB - plan.head.needed_bytes, 12 * GB - plan.stages[1].needed_bytes]
    with pytest.raises(DoesNotFit, match=r"24\.0 GB needed in total"):
        make_plan(**wish, peers=[peer("a", 19), peer("b", 4)])


def test_a_model_that_does_not_fit_is_refused_with_the_missing_gigabytes_and_the_mac() -> None:
    with pytest.raises(
        DoesNotFit, match=r"needs 6\.6 GB more on a \(16\.0 GB needed in total, 9\.0 GB usable on 2 Macs"
    ):
        make_plan(
            model="m",
            fingerprint="f",
            layout=FLAT,
            peers=[peer("a", 5), peer("b", 4)],
            context=64,
            plan_gen=1,
        )


@st.composite
def cut_problems(draw: st.DrawFn) -> tuple[list[int], list[int], int, list[int]]:
    layers = draw(st.integers(2, 9))
    legal = sorted(draw(st.sets(st.integers(1, layers - 1), min_size=1)))
    ideal = sorted(draw(st.sets(st.integers(1, layers - 1), min_size=1, max_size=len(legal))))
    return ideal, legal, layers, draw(st.lists(st.integers(1, 6), min_size=len(ideal) + 1, max_size=len(ideal) + 1))


@given(cut_problems())
def test_cuts_move_to_the_nearest_legal_places_that_leave_the_least_over(
    problem: tuple[list[int], list[int], int, list[int]],
) -> None:
    ideal, legal, layers, budgets = problem

    def overflow(stage: int, start: int, stop: int) -> int:
        return max(0, stop - start - budgets[stage])

    def cost(cuts: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        parts = enumerate(pairwise((0, *cuts, layers)))
        moved = sum(abs(a - b) for a, b in zip(cuts, ideal, strict=True))
        return sum(overflow(i, *part) for i, part in parts), moved, cuts

    found = nearest_cuts(ideal, legal, layers, overflow)
    if set(ideal) <= set(legal):
        assert found == tuple(ideal)
    else:
        assert found == min(combinations(legal, len(ideal)), key=cost)


def test_a_forbidden_cut_is_moved_and_the_plan_says_so() -> None:
    plan = planned([peer("a", 40), peer("b", 20), peer("c", 20)], profile(1, 2, 3, 4, 6))
    assert [(s.start, s.stop) for s in plan.stages] == [(0, 4), (4, 6), (6, 10)]
    assert plan.notes == (
        "b starts at layer 4 instead of 5: layer 5 shares state with those before.",
        "c starts at layer 6 instead of 8: layers 7 to 9 share state with those before.",
    )


def test_a_cut_moves_to_where_the_layers_fit_before_it_moves_to_the_nearest_place() -> None:
    # b has room for four layers and their cache, not for five
    plan = planned([peer("a", 14), peer("b", 5)], profile(5, 8))
    assert [(s.start, s.stop) for s in plan.stages] == [(0, 8), (8, 10)]


def test_with_every_cut_legal_the_plan_is_the_even_split_without_notes() -> None:
    plan = planned([peer("a", 24), peer("b", 12)], profile(*range(1, 10)))
    assert [(s.start, s.stop) for s in plan.stages] == [(0, 7), (7, 10)]
    assert (plan.notes, plan.batched) == ((), True)


def test_macs_for_which_there_is_no_cut_are_left_out_the_smallest_first() -> None:
    plan = planned([peer("a", 8), peer("b", 4), peer("c", 30), peer("d", 9)], profile(2, layers=10))
    assert [s.peer for s in plan.stages] == ["a", "c"]
    assert plan.notes[0] == "b and d are left out: this model can be cut in 1 place only."


def test_a_model_that_cannot_be_cut_stays_on_the_head() -> None:
    whole = profile(unsplittable="all its layers share state")
    plan = planned([peer("a", 24), peer("b", 12)], whole)
    assert (plan.topology, plan.notes) == (
        "single",
        ("b is left out: this model cannot be split, because all its layers share state.",),
    )
    with pytest.raises(DoesNotFit, match=r"needs 6\.0 GB more on a") as caught:
        planned([peer("a", 10), peer("b", 12)], whole)
    assert "more Macs do not help" in caught.value.fix
    assert "cannot be split, because all its layers share state." in caught.value.fix


def test_a_plan_says_who_could_read_the_tokens_and_that_rows_run_alone() -> None:
    found = profile(*range(1, 10), reveals_tokens=True, one_row="mlx-lm cannot batch its cache (X)")
    plan = planned([peer("a", 24), peer("b", 12)], found)
    assert not plan.batched
    assert "Every Mac of this split could infer the prompt's tokens" in plan.notes[0]
    assert plan.notes[1] == "One request at a time: mlx-lm cannot batch its cache (X)."
    assert len(planned([peer("a", 24)], found).notes) == 1, "on one Mac nobody else sees anything"


def test_a_plan_says_what_travels_and_what_that_does_to_answers() -> None:
    wish: Any = {"model": "m", "fingerprint": "f", "layout": FLAT, "context": 4, "plan_gen": 1}
    two, one = [peer("a", 24), peer("b", 24)], [peer("a", 24)]
    plain = make_plan(**wish, peers=two)
    assert plain.wire is None
    assert not any("are sent as" in note for note in plain.notes)
    told: dict[WireType, str] = {"float32": "without loss", "bfloat16": "may differ", "int8": "may differ"}
    for wire, says in told.items():
        plan = make_plan(**wish, peers=two, wire=wire)
        assert plan.wire == wire
        assert says in plan.notes[-1]
        noted, verify = with_verification(plan, 0)
        assert verify is (wire == "float32")
        assert verify or f"Not verified: hidden states are sent as {wire}" in noted.notes[-1]
    alone = make_plan(**wish, peers=one, wire="int8")
    assert (alone.wire, alone.notes) == (None, ()), "nothing travels"


def test_quantised_caches_take_less_run_one_row_and_are_refused_where_mlx_lm_has_none() -> None:
    peers = [peer("a", 12), peer("b", 12)]
    wish: Any = {"model": "m", "fingerprint": "f", "layout": FLAT, "peers": peers, "context": 4, "plan_gen": 1}
    found = profile(*range(1, 10), caches=(CacheSize(bytes_per_token=3200, quantised={8: 1700}),) * 10)
    plan = make_plan(**wish, profile=found, kv_bits=8)
    whole = make_plan(**wish, profile=found)
    assert [s.kv_bytes for s in plan.stages] == [s.kv_bytes * 17 // 32 for s in whole.stages]
    assert (plan.kv_bits, plan.batched, whole.batched) == (8, False, True)
    assert "compressed" in plan.notes[-1]
    with pytest.raises(UnsupportedModel, match="4 bits: no") as caught:
        make_plan(**wish, profile=profile(5, whole_bits="no"), kv_bits=4)
    assert "uncompressed" in caught.value.fix


@pytest.mark.parametrize(("widest", "chunk"), [(8192, 512), (CHUNK_BYTES // 100, 64), (2 * CHUNK_BYTES, 1)])
def test_a_chunk_of_the_prompt_fits_a_frame(widest: int, chunk: int) -> None:
    found = profile(5, boundary_bytes=(1, 1, 1, 1, widest, 1, 1, 1, 1, 1))
    wish: Any = {"model": "m", "fingerprint": "f", "layout": FLAT, "context": 4, "plan_gen": 1}
    assert make_plan(**wish, peers=[peer("a", 12), peer("b", 12)], profile=found).chunk == chunk
    assert make_plan(**wish, peers=[peer("a", 32)], profile=found).chunk == 512


def test_what_cannot_be_verified_is_said_with_the_number() -> None:
    plan = planned([peer("a", 40), peer("b", 20)], profile(*range(1, 10)))
    # the whole model is read before a's layers
    assert with_verification(plan, 30 * GB) == (plan, True)
    noted, verify = with_verification(plan, 42 * GB)
    assert not verify
    assert noted.notes == ("Not verified: the whole model needs 2.0 GB more than a has.",)


def test_a_preview_has_the_split_that_does_not_fit_and_what_each_hop_carries() -> None:
    layout = Layout(
        layers=4,
        layer_bytes=(GB,) * 4,
        token_bytes=(GB,) * 4,
        embed_bytes=GB,
        output_bytes=GB,
        tied=False,
        caches=(CacheSize(bytes_per_token=1000),) * 4,
    )
    found = profile(1, 2, 3, layers=4, boundary_bytes=(10, 20, 30, 40))

    wanted = PlanRequest(model="m", context=64)

    def previewed(*gigabytes: int) -> PlanPreview:
        macs = [peer("ab"[i], size) for i, size in enumerate(gigabytes)]
        return preview_of(wanted, model="m", fingerprint="f", layout=layout, peers=macs, profile=found)

    fits, short, alone, nobody = previewed(10, 5), previewed(4, 2), previewed(10), previewed()
    assert fits.plan
    assert (fits.hop_bytes, fits.cuts, fits.problem) == ((30, 40), (1, 2, 3), None)
    assert short.draft
    assert short.problem
    assert (short.plan, short.problem.kind) == (None, "DoesNotFit")
    assert alone.hop_bytes == ()
    assert nobody.problem
    assert nobody.problem.kind == "NoPeers"


@pytest.mark.parametrize(
    ("count", "words"), [(1, "0.001"), (69_000_000, "0.069"), (99_600_000, "0.1"), (4_200_000_000, "4.2")]
)
def test_what_is_short_is_said_in_figures_that_differ(count: int, words: str) -> None:
    assert gigabytes(count) == words
