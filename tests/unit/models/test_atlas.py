"""Every architecture of mlx-lm, cut at legal places, computes exactly what mlx_lm computes in one process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from core.models.files.sharding import SHARDED
from core.models.slicing.cache_state import parts
from core.models.slicing.measured_caches import one_row
from core.models.slicing.probe import ModelProbe, legal_cuts
from core.models.slicing.quirks import verifies_drafts
from core.models.slicing.slots import Slice
from tests.support.atlas import BATCHED_KINDS, CANNOT_RUN, FAMILIES, KINDS, RUNNING, nightly_unless
from tests.support.made import architectures, build, poison, twin, untrained
from tests.support.rings import Reference, Ring, check
from tests.support.search import SEARCH

pytestmark = pytest.mark.slow

# 24 tokens exceed a sliding window of 8, and both chunks together exceed a first attention block of 32
CHUNKS: Final = (11, 24)
STEPS: Final = 3
# numbers of cuts among seven: together every cut of a model that can be cut everywhere. `make search` tries both with
# each variant, `make test` alternates.
SPLITS: Final = ((1, 3), (0, 2, 6))
LOW_PRECISION_SPLIT: Final = (4, 5)
# the third row joins the others after one step, the second leaves after another
PROMPTS: Final = (5, 11, 19)

RUNS_WHOLE: Final = {
    "iquestloopcoder": "it does not call its layers one by one",  # it calls their parts, in two loops
    "nanbeige looped": "its layers run more than once for a token",
}
# mlx multiplies by unquantised experts in float32 only, without a GPU
EXPERTS_IN_FLOAT32: Final = {
    "Klear", "afmoe", "bailing_hybrid", "bailing_moe", "bailing_moe_linear", "bailing_moe_v3", "deepseek",
    "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v41", "dots1", "ernie4_5_moe", "exaone_moe",
    "gemma4_text experts", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt_oss", "granitemoe", "granitemoehybrid",
    "hunyuan", "hunyuan own keys", "jamba", "kimi_k25", "kimi_k3", "kimi_linear", "kimi_vl", "laguna", "lfm2_moe",
    "llama4", "longcat_flash", "longcat_flash_ngram", "mellum", "mimo_v2_flash", "minimax", "minimax_m3_vl",
    "mistral4", "mixtral", "nemotron_h experts", "olmoe", "phimoe", "phixtral", "qwen2_moe", "qwen3_5_moe",
    "qwen3_moe", "qwen3_next", "qwen3_vl_moe", "solar_open", "step3p5",
}  # fmt: skip
# Rows of these can't share a batch; the reason lies in mlx-lm's code and is the same for the whole model.
ONE_ROW: Final = {
    "afm7": "borrow keys",
    "deepseek_v41": "cannot batch its cache",
    "gemma2": "one row at a time",  # its soft-capped scores take no mask of several rows
    "gpt_bigcode": "one row at a time",  # it looks up one position for all rows
    "llama4": "cannot batch its cache",
    "minimax_m3_vl": "counts blocks from the padding",
    "phi3small": "one row at a time",  # its block-sparse scores take no mask of several rows
}
# mlx-lm's own code gives other logits for several tokens at once
ONE_BY_ONE: Final = {"phi3small"}


class WholeModel:
    """A variant's whole model, uncut, and its probe."""

    def __init__(self, variant: str, dtype: mx.Dtype = mx.float32, bits: int | None = None) -> None:
        self.variant = variant
        self.bits = bits
        self.whole = build(variant, dtype, bits)
        self.probe = ModelProbe(self.whole)

    def reference(self) -> Reference:
        """The reference for rings of this model; raises AssertionError unless it wanders."""
        reference = Reference(self.whole, CHUNKS, STEPS)
        assert len(set(reference.tokens)) > STEPS // 2
        return reference

    def ring(self, split: tuple[int, ...]) -> Ring:
        """A private ring: its head owns the first layers, the embedding and the output."""
        legal = sorted(legal_cuts(self.probe))
        cuts = sorted({legal[number * len(legal) // 7] for number in split if legal})
        return Ring([self._stage(start, stop) for start, stop in pairwise((0, *cuts, self.probe.layers))], head=0)

    def _stage(self, start: int, stop: int) -> Slice:
        model = twin(self.variant, self.whole, self.bits)
        poison(model, self.probe, range(start, stop), head=start == 0)
        return Slice(model, self.probe, start, stop, embed=start == 0, output=start == 0)


@pytest.fixture(scope="module", params=nightly_unless(KINDS))
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def made(variant: str) -> WholeModel:
    return WholeModel(variant)


def test_every_architecture_is_here() -> None:
    found = architectures()
    assert found.keys() == {variant.split(" ")[0] for variant in FAMILIES}
    assert {name for name, model in found.items() if hasattr(model, "shard")} == SHARDED
    assert {*CANNOT_RUN, *RUNS_WHOLE, *EXPERTS_IN_FLOAT32, *ONE_ROW} <= set(FAMILIES)


@pytest.mark.parametrize("variant", CANNOT_RUN)
def test_what_cannot_run_here_still_cannot(variant: str) -> None:
    with pytest.raises((RuntimeError, SystemExit), match=CANNOT_RUN[variant]):
        WholeModel(variant).reference()


class Structure(NamedTuple):
    """How the layers of a model are cut, sent and cached; families that share it compute differently."""

    caches: frozenset[str]
    # in lists
    parts: frozenset[str]
    # layers without a cache, caches of the embedding, layers that read the keys of others
    flags: tuple[bool, bool, bool]
    # whether it can be cut nowhere, somewhere or everywhere
    cuts: tuple[bool, bool]
    # the ranks of the arrays that cross each cut
    sent: frozenset[tuple[int, ...]]
    # side inputs
    sides: int
    one_row: str
    verifies_drafts: bool


def structure(model: Any, probe: ModelProbe, alone: str) -> Structure:
    caches, legal = make_prompt_cache(model), legal_cuts(probe)
    return Structure(
        caches=frozenset(type(each).__name__ for each in caches),
        parts=frozenset(type(part).__name__ for each in caches for part in parts(each)),
        flags=(None in probe.cache_of, bool(probe.embed_caches), probe.reads_caches),
        cuts=(bool(legal), len(legal) == probe.layers - 1),
        sent=frozenset(tuple(len(shape) for shape, _ in after.kinds) for after in probe.boundaries),
        sides=len({number for cut in legal for number in probe.sides_behind(cut)}),
        one_row=alone,
        verifies_drafts=verifies_drafts(model),
    )


def test_every_family_can_be_cut_and_batched_as_one_of_the_kinds_or_says_why_not() -> None:
    """`make test` computes with the kinds, `make nightly` with every family."""
    found = {}
    for variant in RUNNING:
        model = untrained(variant)
        probe = ModelProbe(model)
        assert RUNS_WHOLE.get(variant, "") in probe.unsplittable
        assert bool(legal_cuts(probe)) == (variant not in RUNS_WHOLE), variant
        reason = one_row(model, probe)
        assert bool(reason) == (variant in ONE_ROW), f"{variant}: {reason}"
        assert ONE_ROW.get(variant, "") in reason
        found[variant] = structure(model, probe, ONE_ROW.get(variant, ""))
    kinds = {found[variant] for variant in KINDS}
    assert [variant for variant in RUNNING if found[variant] not in kinds] == []


@pytest.mark.search
def test_a_ring_equals_one_process(variant: str, made: WholeModel) -> None:
    reference = made.reference()
    for split in SPLITS if SEARCH > 1 else (SPLITS[RUNNING.index(variant) % 2],):
        check(made.ring(split), reference, within=1e-5)


@pytest.mark.search
@pytest.mark.parametrize("variant", nightly_unless({*BATCHED_KINDS, *ONE_BY_ONE}), indirect=True)
def test_several_tokens_at_once_give_what_they_give_one_by_one(variant: str, made: WholeModel) -> None:
    """Otherwise a right guess would look wrong, or worse. The tokens stay within a sliding window of 8."""
    model: Any = made.whole
    tokens = np.random.default_rng(5).integers(4, 200, 8).tolist()
    alone, together = make_prompt_cache(model), make_prompt_cache(model)
    expected = np.concatenate([np.array(model(mx.array([[token]]), cache=alone)[0]) for token in tokens])
    parts = [model(mx.array([part]), cache=together)[0] for part in (tokens[:3], tokens[3:7], tokens[7:])]
    logits = np.array(mx.concatenate(parts))
    same = bool((logits.argmax(-1) == expected.argmax(-1)).all() and np.nanmax(np.abs(logits - expected)) < 1e-3)
    assert same == verifies_drafts(model)
    assert same == (variant not in ONE_BY_ONE)


@pytest.mark.search
# the format of numbers does not change the cuts of a family: some of them show that
@pytest.mark.parametrize("variant", nightly_unless(KINDS[::6]))
def test_bfloat16(variant: str) -> None:
    made = WholeModel(variant, mx.bfloat16)
    if variant in EXPERTS_IN_FLOAT32:
        with pytest.raises(RuntimeError, match="only supports float32"):
            made.reference()
    else:
        check(made.ring(LOW_PRECISION_SPLIT), made.reference(), within=None)


@pytest.mark.search
@pytest.mark.parametrize("variant", nightly_unless(KINDS[::6]))
def test_four_bits(variant: str) -> None:
    if variant == "afm7":
        with pytest.raises(TypeError, match="unexpected keyword argument 'mode'"):  # mlx-lm cannot quantise it
            WholeModel(variant, bits=4)
    else:
        made = WholeModel(variant, bits=4)
        check(made.ring(LOW_PRECISION_SPLIT), made.reference(), within=None)


class Row:
    """A row of a batch, and its results alone. `at`: steps that it has run."""

    def __init__(self, made: WholeModel, ring: Ring, prompt: int, steps: int) -> None:
        self.alone = Reference(made.whole, (prompt,), steps)
        self.at = 0
        self.start = ring.begin()
        ring.step(self.start, self.alone.inputs[0])


def decode(ring: Ring, rows: int, members: list[Row]) -> None:
    """Run a step of several rows, and compare each with its own run alone."""
    logits = ring.step(rows, [[row.alone.tokens[row.at]] for row in members])
    for row, found in zip(members, logits, strict=True):
        row.at += 1
        # the sharp attention of some made-up weights turns rounding into 1e-4; a wrong row is off by about 1
        np.testing.assert_allclose(found, row.alone.logits[row.at][0], rtol=0, atol=1e-3)
        assert int(found.argmax()) == row.alone.tokens[row.at]


@pytest.mark.search
@pytest.mark.parametrize("variant", nightly_unless(BATCHED_KINDS), indirect=True)
def test_rows_of_different_lengths_share_a_batch(variant: str, made: WholeModel) -> None:
    if variant in ONE_ROW:
        return
    ring = made.ring((2,))
    a, b, c = (Row(made, ring, prompt, steps) for prompt, steps in zip(PROMPTS, (3, 2, 2), strict=True))
    rows = ring.merge([a.start, b.start])
    decode(ring, rows, [a, b])
    rows = ring.extend(rows, ring.merge([c.start]))
    decode(ring, rows, [a, b, c])
    decode(ring, ring.keep(rows, [0, 2]), [a, c])
