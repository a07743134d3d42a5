"""A dry run in a child finds the facts about a model, and the child always ends in time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from core.models.slicing.split_profile import SplitProfile
from tests.support.borrowing import LAYERS, borrowing
from tests.support.maker import make_model


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "plain"
    make_model(directory, "gemma4_text", layers=LAYERS)
    return directory


def examined(directory: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "core.models.slicing.examine", str(directory)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


@pytest.mark.slow
def test_a_model_that_can_be_cut_everywhere_says_so(plain: Path) -> None:
    ran = examined(plain)
    found = msgspec.json.decode(ran.stdout, type=SplitProfile)
    assert (ran.returncode, found.layers, found.cuts) == (0, LAYERS, tuple(range(1, LAYERS)))
    assert found.boundary_bytes == (96 * 4,) * LAYERS, "one float32 vector of the hidden size"
    packed = {"float32": 96 * 4, "bfloat16": 96 * 2, "int8": 96 + 4}
    assert found.wire_bytes == {wire: (size,) * LAYERS for wire, size in packed.items()}
    assert (found.unsplittable, found.one_row, found.reveals_tokens) == ("", "", False)


@pytest.mark.slow
def test_layers_that_borrow_keys_forbid_cuts(plain: Path, tmp_path: Path) -> None:
    directory = borrowing(plain, tmp_path / "borrowing")
    found = msgspec.json.decode(examined(directory).stdout, type=SplitProfile)
    # layers 4 to 7 borrow from layer 2 (sliding) and layer 3 (full)
    assert found.cuts == (1, 2)


@pytest.mark.slow
def test_what_cannot_be_examined_is_a_problem_that_names_it(plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "cut")
    shard = next((tmp_path / "cut").glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-100])
    ran = examined(tmp_path / "cut")
    assert (ran.returncode, json.loads(ran.stdout)["kind"]) == (1, "BadModel")
    assert shard.name in json.loads(ran.stdout)["what"]
    assert examined(tmp_path / "nowhere").returncode == 1


@pytest.mark.slow
def test_a_child_ends_with_its_parent() -> None:
    child = "import time; from core.models.files.sandbox import confine; confine(50); time.sleep(60)"
    script = "import subprocess, sys; from core.models.files.child_start import ChildStart; start = ChildStart('it');"
    script += f"subprocess.run([sys.executable, '-c', {child!r}], **start.options)"
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        deadline = time.monotonic() + 20
        while not (children := psutil.Process(parent.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        parent.kill()
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert (len(gone), alive) == (1, [])
