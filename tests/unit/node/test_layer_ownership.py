"""The stages' reports are compared with the plan: the first fault names the Mac, the layers or file, and the cure."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.events import Plan
from core.node.ring.layer_ownership import first_fault, other_file
from core.worker.messages import Loaded
from tests.support.plans import FILES, as_ranks, held, mac_id, plan_of


def told(count: int = 3, **of: dict[str, Any]) -> dict[str, Loaded]:
    """The reports of all stages, with changes: `mac1={"stop": 5}`."""
    return {mac_id(n): held(n, **of.get(f"mac{n}", {})) for n in range(count)}


def recut(*ranges: tuple[int, int]) -> tuple[Plan, dict[str, Loaded]]:
    """A wrong plan, and stages that follow it exactly."""
    plan = plan_of(3)
    stages = tuple(
        msgspec.structs.replace(s, start=start, stop=stop) for s, (start, stop) in zip(plan.stages, ranges, strict=True)
    )
    holding = {mac_id(n): held(n, start=a, stop=b, embed=a == 0) for n, (a, b) in enumerate(ranges)}
    return msgspec.structs.replace(plan, stages=stages), holding


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_stages_that_hold_what_the_plan_says_have_no_fault(count: int) -> None:
    assert first_fault(plan_of(count), told(count)) is None


def test_a_reverse_ring_is_held_against_the_order_of_the_layers() -> None:
    ranges = ((4, 6), (0, 2), (2, 4))
    plan, holding = recut(*ranges)
    assert first_fault(plan, holding) is None
    plan, holding = recut((4, 6), (0, 2), (3, 4))
    fault = first_fault(plan, holding)
    assert fault is not None
    assert fault.problem.what == "Layer 2 of toy would be owned by no Mac."


def test_ranks_hold_all_layers_and_embed() -> None:
    plan, everything = as_ranks(plan_of(2)), {"start": 0, "stop": 4, "embed": True}
    holding = told(2, mac0=everything, mac1=everything)
    assert first_fault(plan, holding) is None
    short = first_fault(plan, {**holding, mac_id(1): held(1, **everything | {"stop": 3})})
    assert short is not None
    assert (
        "loaded layers 0 to 2 and the embedding; the plan gives it layers 0 to 3 and the embedding"
        in short.problem.what
    )


def test_nothing_is_wrong_while_nothing_is_known() -> None:
    plan, everything = plan_of(3), told()
    for known in range(3):
        assert first_fault(plan, {mac_id(n): everything[mac_id(n)] for n in range(known)}) is None
    assert other_file(plan, mac_id(2), FILES, FILES) is None


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        (((0, 3), (2, 4), (4, 6)), "Layer 2 of toy would be owned twice: by mac0 and by mac1."),
        (((0, 2), (2, 6), (3, 6)), "Layers 3 to 5 of toy would be owned twice: by mac1 and by mac2."),
        (((0, 2), (3, 4), (4, 6)), "Layer 2 of toy would be owned by no Mac."),
        (((1, 2), (2, 4), (4, 6)), "Layer 0 of toy would be owned by no Mac."),
        (((0, 2), (2, 4), (4, 5)), "toy has 6 layers, but the stages end with layer 4."),
        (((0, 2), (2, 4), (4, 7)), "toy has 6 layers, but the stages end with layer 6."),
        (((0, 2), (0, 4), (4, 6)), "Layers 0 to 1 of toy would be owned twice: by mac0 and by mac1."),
    ],
)
def test_a_plan_that_does_not_own_every_layer_once_is_refused(ranges: tuple[tuple[int, int], ...], said: str) -> None:
    fault = first_fault(*recut(*ranges))
    assert fault is not None
    assert fault.problem.what == said
    assert fault.problem.fix


def test_an_output_head_without_an_owner_is_refused() -> None:
    plan = msgspec.structs.replace(plan_of(3), output=mac_id(7))
    fault = first_fault(plan, told(mac0={"output": False}))
    assert fault is not None
    assert fault.problem.what == "The output head of toy would be owned by no Mac."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": 1}, "mac1 loaded layers 1 to 3; the plan gives it layers 2 to 3."),
        ({"stop": 3}, "mac1 loaded layer 2; the plan gives it layers 2 to 3."),
        ({"embed": True}, "mac1 loaded layers 2 to 3 and the embedding; the plan gives it layers 2 to 3."),
        ({"output": True}, "mac1 loaded layers 2 to 3 and the output head; the plan gives it layers 2 to 3."),
    ],
)
def test_a_mac_that_loaded_something_else_than_the_plan_says_is_named(change: dict[str, Any], said: str) -> None:
    fault = first_fault(plan_of(3), {mac_id(1): held(1, **change)})
    assert fault is not None
    assert fault.problem.what == said
    assert "same version" in fault.problem.fix


def test_another_fingerprint_is_refused_and_the_cure_says_from_where_to_copy() -> None:
    fault = first_fault(plan_of(3), told(mac2={"fingerprint": "e" * 64}))
    assert fault is not None
    assert fault.problem.kind == "ModelMismatch"
    assert "mac2 loaded toy eeeeeeeeeeee" in fault.problem.what
    assert "from mac0 to mac2" in fault.problem.fix


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({**FILES, "model.safetensors": "b" * 64}, "model.safetensors of toy on mac2 is not the same file as on mac0."),
        ({"config.json": "c" * 64}, "model.safetensors of toy is missing on mac2."),
        ({**FILES, "model-2.safetensors": "b" * 64}, "model-2.safetensors of toy is on mac2, but not on mac0."),
        ({}, "config.json of toy is missing on mac2."),
    ],
)
def test_the_first_file_that_is_not_the_heads_is_named(theirs: dict[str, str], said: str) -> None:
    problem = other_file(plan_of(3), mac_id(2), FILES, theirs)
    assert problem is not None
    assert problem.kind == "ModelMismatch"
    assert problem.what == said
    assert "from mac0 to mac2" in problem.fix
