"""The list of known models: the one in macluster, and how it is made."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import msgspec
import pytest

from core.models.files.model_folder import read_folder
from core.models.known.known_models import KnownModels, known_models
from core.models.made.maker import make_model
from tests.known_models.make_list import from_published, main
from tests.known_models.published_configs import PUBLISHED
from tests.support.hub import COMMIT, point_at, running_hub

REPO = "acme/toy"


def test_every_row_says_what_a_fit_needs() -> None:
    known = known_models()
    assert date.fromisoformat(known.made_on)
    assert len(known.models) >= 25
    assert len({row.repo for row in known.models}) == len(known.models)
    for row in known.models:
        layout = row.layout
        assert (row.layers, row.total_bytes) == (layout.layers, layout.total_bytes)
        assert layout.sharding.hidden_bytes
        assert row.licence
        assert all(cache.bytes_per_token for cache in layout.caches)


def test_a_published_config_says_the_bytes() -> None:
    published = next(each for each in PUBLISHED if each.name == "Qwen3-0.6B-4bit")
    row = from_published(published)
    quantised = 9 / 16  # four bits, and a scale and a bias of 16 bits for 64 of them
    matrices = 2 * 1024 * 2048 + 2 * 1024 * 1024 + 3 * 1024 * 3072
    norms = 2 * (2 * 1024 + 2 * 128)
    assert row.runs[0].layer_bytes == matrices * quantised + norms
    assert row.embed_bytes == 151936 * 1024 * quantised
    assert (row.layers, row.tied, row.quantization, row.context_max) == (28, True, "4-bit", 40960)
    assert row.runs[0].cache.bytes_per_token == 2 * 8 * 128 * 2


async def test_a_list_is_made_from_what_a_hub_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = tmp_path / "toy", tmp_path / "list.json"
    make_model(folder, "qwen3_moe", hidden=64, bits=4)
    async with running_hub(folder, REPO) as hub:
        point_at(monkeypatch, hub)
        words = ["--only", REPO, "acme/none", "--output", str(output)]
        assert await asyncio.to_thread(main, words) == 0
        assert "left out: The hub has no model acme/none" in capsys.readouterr().err
        assert await asyncio.to_thread(main, ["--only", "acme/none", "--output", str(tmp_path / "no")]) == 1
    made = msgspec.json.decode(output.read_bytes(), type=KnownModels)
    (row,) = made.models
    assert (made.source, made.made_on) == ("hub", date.today().isoformat())
    assert (row.repo, row.revision, row.licence) == (REPO, COMMIT, "mit")
    assert row.layout == read_folder(folder).layout()
    assert (row.model_type, row.quantization, row.context_max) == ("qwen3_moe", "4-bit", 4096)
    assert not (tmp_path / "no").exists()
