"""`macluster demo --real` downloads its model once, and uses the one that is there without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import TransferError
from core.models.files.checked_files import name_of
from tests.support.cluster import Make
from tests.support.hub import running_hub
from tui.cli.real_model import REAL_MODEL, real_model


async def test_the_model_is_downloaded_once(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = made("llama")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    async with running_hub(repo, REAL_MODEL) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.fault = lambda name, number: "pointer" if name == "model-00002-of-00003.safetensors" else ""
        with pytest.raises(TransferError):
            await real_model()
        hub.fault = lambda name, number: ""
        folder = await real_model()
    assert name_of(folder) == REAL_MODEL
    assert {file.name: file.read_bytes() for file in folder.glob("*.safetensors")} == {
        file.name: file.read_bytes() for file in repo.glob("*.safetensors")
    }
    capsys.readouterr()
    assert await real_model() == folder
    assert capsys.readouterr().err == "", "nothing is downloaded"


async def test_without_a_network_an_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(TransferError, match="nothing is downloaded") as refused:
        await real_model()
    assert refused.value.fix.endswith("Without --real, the demo needs no network.")
