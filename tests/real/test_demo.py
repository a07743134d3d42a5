"""`macluster demo --real` with a real model in its place."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import PIPE
from os import environ
from pathlib import Path

import pytest

from tui.cli.real_model import REAL_MODEL

pytestmark = pytest.mark.real

COMMIT = "0123456789abcdef0123456789abcdef01234567"


async def test_the_demo_answers_with_a_real_model_without_a_network(model: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / f"models--{REAL_MODEL.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    shutil.copytree(model, repository / "snapshots" / COMMIT)
    asked = ("demo", "--real", "--json", "--prompt", "What is the capital of France?", "--no-multicast", "--macs", "2")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tui.cli.main", *asked),
        stdout=PIPE,
        stderr=PIPE,
        env={**environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    answer = json.loads(out)
    assert answer["text"] == "The capital of France is Paris."
    assert "Downloading" not in err.decode()
