"""On a GPU the sums of a model depend on shapes: a ring equals mlx_lm within a tolerance.

Its tokens are the same unless the best two are nearly equal. All other tests compute on the CPU.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from core.engine.ring_model import RingModel
from core.events import Topology
from core.local.local_ring import local_ring
from core.models.files.model_folder import read_folder
from core.models.metal import fault_of, working_set_bytes
from core.models.slicing.building import build
from core.settings import DEVICE
from core.verify.slices import STEPS, TOLERANCE, compared, logits_of, reference
from tests.support.maker import make_model
from tests.support.worker_ring import ask, worker_ring

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not mx.is_available(mx.gpu), reason="MLX has no GPU here"),
]

CUTS = (3, 6)
SHAPE: dict[str, Any] = {"layers": 8, "hidden": 256, "intermediate": 512, "head_dim": 64}


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the GPU in this process, and in the workers that it starts."""
    monkeypatch.setenv(DEVICE, "gpu")
    mx.set_default_device(mx.gpu)
    yield
    mx.set_default_device(mx.cpu)


@pytest.mark.parametrize(
    ("family", "more", "topology"),
    [
        pytest.param("llama", {}, "private", id="llama"),
        pytest.param("llama", {"dtype": "bfloat16"}, "forward", id="llama-bfloat16-forward"),
        pytest.param("llama", {"dtype": "bfloat16", "bits": 4}, "reverse", id="llama-4-bit-reverse"),
        pytest.param("qwen3_moe", {}, "private", id="experts"),
        pytest.param("gemma3_text", {}, "private", id="windows"),
    ],
)
def test_a_ring_computes_what_mlx_lm_computes(
    tmp_path: Path, family: str, more: dict[str, Any], topology: Topology
) -> None:
    make_model(tmp_path, family, **SHAPE, **more)
    parts, expected = reference(build(read_folder(tmp_path)).model, 512)
    assert len({part[0] for part in parts[1:]}) > STEPS / 2, "a reference that does not wander shows nothing"
    with local_ring(tmp_path, CUTS, topology) as stages:
        outcome = compared(expected, logits_of(RingModel(stages), parts), TOLERANCE["gpu"])
    assert outcome.passed, outcome.figure


def test_workers_on_a_gpu_answer_the_same_again(tmp_path: Path) -> None:
    """The same work in the same shapes: here all tokens are the same."""
    make_model(tmp_path, "llama", **SHAPE)
    with worker_ring(tmp_path, CUTS, draft=0) as ring:
        first, again = (ask(ring, tuple(range(101, 140)), 24, fresh=False).answer for _ in range(2))
    assert first.tokens == again.tokens


def gpus() -> int:
    """NVIDIA GPUs of this machine, whichever of them this process sees."""
    if shutil.which("nvidia-smi") is None:
        return 0
    return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())


@pytest.mark.skipif(gpus() < 2, reason="it takes two NVIDIA GPUs")
def test_ranks_on_two_gpus_add_up_through_nccl(tmp_path: Path) -> None:
    make_model(tmp_path, "llama", **SHAPE)
    prompt = tuple(range(101, 140))
    with worker_ring(tmp_path, (), ranks=2, group="nccl", own_gpus=True, draft=0) as ranks:
        told = ask(ranks, prompt, 24).answer
    with worker_ring(tmp_path, (), draft=0) as alone:
        expected = ask(alone, prompt, 24).answer
    assert len(set(expected.tokens)) >= 12, "a reference that repeats one token proves nothing"
    assert told.tokens == expected.tokens


def test_the_gpu_tells_how_much_memory_it_may_use_where_it_is_metals() -> None:
    if not mx.metal.is_available():
        pytest.skip("MLX has no Metal here")
    assert working_set_bytes() > 0


def test_an_error_that_is_not_the_gpus_is_no_fault_of_it() -> None:
    with pytest.raises(ValueError, match="shape") as caught:
        mx.eval(mx.ones((2, 3)) @ mx.ones((2, 3)))
    assert fault_of(caught.value) is None
