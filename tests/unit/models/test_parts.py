"""The bytes a Mac must fetch for a slice are known from headers alone, are enough, and belong to no other slice."""

from __future__ import annotations

import json
import re
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.utils import tree_flatten

from core.models.files.model_folder import read_folder
from core.models.files.parts import Part, in_fewer, parts_of
from core.models.files.safetensors import SafetensorsHeader, Tensor
from core.models.slicing.building import origins
from core.models.slicing.loading import load_slice, slice_parts
from core.models.slicing.slots import Slice
from tests.support import atlas
from tests.support.checkpoints import REWRITES, copy_part, hollow, read_weights, write_weights
from tests.support.made import build
from tests.support.made_configs import FAMILIES
from tests.support.maker import make_model

pytestmark = pytest.mark.slow

LAYERS = 4
STAGES = ((0, 1), (1, 3), (3, LAYERS))
TOKENS = mx.array([[5, 17, 300, 41, 8, 99, 250, 6, 77, 123]])
CHECKPOINTS = {**{f"{family} {bits or ''}": (family, bits) for family in FAMILIES for bits in (None, 4)}, **REWRITES}
# every second family is quantised here, the others in `make nightly`
HERE = [f"{family} {bits or ''}" for family, bits in zip(FAMILIES, cycle((None, 4)))]


def load(directory: Path, start: int, stop: int) -> Slice:
    return load_slice(read_folder(directory), start, stop, embed=start == 0, output=stop == LAYERS)


def parts(directory: Path, start: int, stop: int) -> tuple[Part, ...]:
    return slice_parts(read_folder(directory), start, stop, embed=start == 0, output=stop == LAYERS)


def logits(stages: list[Slice]) -> np.ndarray[Any, Any]:
    caches = [stage.caches.new() for stage in stages]
    boundary = stages[0].embed(TOKENS, caches[0], 0)
    for stage, own in zip(stages[1:], caches[1:], strict=True):
        boundary = stage.run(boundary, own, 0)
    return np.array(stages[-1].output(boundary, caches[-1], TOKENS.shape[1]).astype(mx.float32))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.nightly] * (name not in HERE and name not in REWRITES))
        for name in CHECKPOINTS
    ],
)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint") / "whole"
    family, change = CHECKPOINTS[request.param]
    if callable(change):
        make_model(directory, family, layers=LAYERS)
        change(directory)
    else:
        make_model(directory, family, layers=LAYERS, bits=change)
    return directory


def test_the_parts_of_a_slice_are_found_without_data_and_are_enough(checkpoint: Path, tmp_path: Path) -> None:
    stages = []
    for start, stop in STAGES:
        fetched = tmp_path / f"from-{start}"
        hollow(checkpoint, fetched)
        missing = parts(fetched, start, stop)
        assert missing == parts(checkpoint, start, stop)
        for part in missing:
            copy_part(checkpoint, fetched, part)
        stages.append(load(fetched, start, stop))
    expected = logits([load(checkpoint, start, stop) for start, stop in STAGES])
    assert np.isfinite(expected).all()
    assert len(np.unique(expected)) > 400
    np.testing.assert_array_equal(logits(stages), expected)


def test_the_parts_of_a_slice_hold_no_tensor_of_another(checkpoint: Path) -> None:
    headers = read_folder(checkpoint).headers
    tensors = {name: t.nbytes for header in headers.values() for name, t in header.tensors.items()}
    tied = not any("lm_head" in name for name in tensors)
    for start, stop in STAGES:

        def is_own(name: str, start: int = start, stop: int = stop) -> bool:
            if found := re.search(r"layers\.(\d+)\.", name):
                return start <= int(found[1]) < stop
            return start == 0 or (tied and stop == LAYERS) if "embed_tokens" in name else stop == LAYERS

        own = sum(nbytes for name, nbytes in tensors.items() if is_own(name))
        found = parts(checkpoint, start, stop)
        assert sum(part.nbytes for part in found) == own + sum(header.nbytes for header in headers.values())
        assert all(a.file != b.file or a.end < b.begin for a, b in pairwise(found)), "parts that touch are one"


def test_a_family_whose_forward_looks_at_values_reads_no_more_for_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(atlas.config_of("dbrx")))
    write_weights(tmp_path, dict(tree_flatten(build("dbrx").parameters())))
    read = {name for name in read_weights(tmp_path) if re.search(r"blocks\.[0-3]\.|wte", name)}
    assert slice_parts(read_folder(tmp_path), 0, 4, embed=True, output=False) == parts_of(
        read_folder(tmp_path).headers, read
    )


def test_tensors_with_hostile_names_are_told_apart(tmp_path: Path) -> None:
    names = ['a"', "a", 'b\n{ 1 [label ="Load"', "b\\", "1 -> 2", "\x1b[2J", "t0", "𝕒", ""]
    mx.save_safetensors(str(tmp_path / "x.safetensors"), {n: mx.full((2, 2), i) for i, n in enumerate(names)})
    tensors: Any = mx.load(str(tmp_path / "x.safetensors"))
    for name in names:
        assert origins(tensors, [mx.stack([tensors[name] + 1])]) == {name}
    left, right = mx.split(mx.concatenate([tensors["a"], tensors[""]]), 2)
    assert origins(tensors, [left]) == origins(tensors, [left, right]) == {"a", ""}
    assert origins(tensors, [mx.zeros(3)]) == set()


def test_a_tensor_that_was_looked_at_belongs_to_every_slice(tmp_path: Path) -> None:
    mx.save_safetensors(str(tmp_path / "x.safetensors"), {n: mx.ones((2, 2)) for n in "abc"})
    tensors: Any = mx.load(str(tmp_path / "x.safetensors"))
    assert tensors["b"].sum().item() == 4
    mx.eval(tensors["b"])
    assert origins(tensors, [tensors["a"] + 1]) == {"a", "b"}


def test_parts_that_touch_are_one_and_every_header_is_there() -> None:
    def tensor(begin: int, nbytes: int) -> Tensor:
        return Tensor(dtype="U8", shape=(nbytes,), nbytes=nbytes, begin=begin)

    headers = {
        "one": SafetensorsHeader(nbytes=100, tensors={"c": tensor(30, 5), "a": tensor(0, 10), "b": tensor(10, 20)}),
        "two": SafetensorsHeader(
            nbytes=50, tensors={"d": tensor(0, 7), "e": tensor(7, 7), "f": tensor(14, 1), "g": tensor(20, 0)}
        ),
    }

    def found(names: str) -> list[tuple[str, int, int]]:
        return [(part.file, part.begin, part.end) for part in parts_of(headers, set(names))]

    assert found("") == [("one", 0, 100), ("two", 0, 50)]
    assert found("abc") == [("one", 0, 135), ("two", 0, 50)]
    assert found("bce") == [("one", 0, 100), ("one", 110, 135), ("two", 0, 50), ("two", 57, 64)]
    assert found("g") == [("one", 0, 100), ("two", 0, 50)]


@given(
    cuts=st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 999), min_size=2, max_size=40, unique=True)),
    most=st.integers(1, 30),
)
def test_parts_in_fewer_hold_all_that_they_held(cuts: dict[str, list[int]], most: int) -> None:
    parts = [
        Part(file=file, begin=begin, end=end)
        for file, at in cuts.items()
        for begin, end in zip(sorted(at)[::2], sorted(at)[1::2], strict=False)
    ]
    fewer = in_fewer(parts, most)
    assert len(fewer) <= max(most, len({part.file for part in parts}))
    assert all(any(f.file == p.file and f.begin <= p.begin and p.end <= f.end for f in fewer) for p in parts)
    assert len(parts) > most or sorted(parts, key=str) == sorted(fewer, key=str)


def test_the_narrowest_gaps_are_closed_first() -> None:
    parts = [Part(file="a", begin=at, end=at + 5) for at in (0, 100, 107, 300)]
    assert [(part.begin, part.end) for part in in_fewer(parts, 3)] == [(0, 5), (100, 112), (300, 305)]
