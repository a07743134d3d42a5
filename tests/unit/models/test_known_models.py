"""The list of known models: the one in macluster, and how it is made."""

from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import msgspec
import pytest

from core.models.files.model_folder import read_folder
from core.models.files.suitability import check_architecture
from core.models.known.known_models import KnownModels, known_models
from tests.known_models.make_list import from_published, main
from tests.known_models.published_configs import PUBLISHED
from tests.support.hub import COMMIT, point_at, running_hub
from tests.support.maker import make_model

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


def test_every_row_can_run_and_the_list_is_of_this_year() -> None:
    names = [row.repo.removeprefix("mlx-community/") for row in known_models().models]
    for row in known_models().models:
        check_architecture({"model_type": row.model_type}, row.repo)
    families = ("Qwen3.5-", "Qwen3.6-", "Qwen3.8-", "gemma-3-", "gemma-4-", "gpt-oss-20b", "gpt-oss-120b", "GLM-4.7-")
    more = ("GLM-5.1-", "Mistral-Small-4-", "Mistral-Medium-3.5-", "DeepSeek-V3.2-", "MiniMax-M2.7-", "MiniMax-M3-")
    for family in (*families, *more):
        assert any(name.startswith(family) for name in names), family
    assert not [name for name in names if name.startswith("Kimi")], "its tokenizer is code, which macluster never runs"


def test_the_list_is_what_the_published_configs_say_and_each_names_its_sources() -> None:
    known = known_models()
    assert known.source == "published configs"
    assert {row.repo for row in known.models} == {each.repo for each in PUBLISHED}
    for each in PUBLISHED:
        for source in (each.listed, each.architecture.source):
            assert source.startswith("github.com/"), each.repo


@pytest.mark.parametrize(
    ("repo", "nbytes"),
    [  # sizes that the repositories' own index files give; these models have no vision tower
        ("DeepSeek-V3.2-4bit", 378_086_226_621),
        ("GLM-4.7-4bit", 198_556_925_568),
        ("GLM-5.1-MXFP4-Q8", 405_480_321_024),
        ("MiniMax-M2.5-4bit", 128_666_664_960),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-MLX-4Bit", 17_775_342_336),
    ],
)
def test_the_sizes_are_those_of_the_hub(repo: str, nbytes: int) -> None:
    row = next(row for row in known_models().models if row.repo == f"mlx-community/{repo}")
    assert row.total_bytes == pytest.approx(nbytes, rel=1e-4)
    assert not row.text_only


@pytest.mark.parametrize(
    ("repo", "nbytes", "tower"),
    [  # the index files' sizes, and bytes of the parts for images and sound, equal in conversions of one model
        ("Qwen3.5-9B-4bit", 5_950_062_560, 912_022_496),
        ("Qwen3.5-9B-8bit", 10_426_433_504, 912_022_496),
        ("Qwen3.6-35B-A3B-4bit", 20_401_929_952, 893_142_496),
        ("Qwen3.6-35B-A3B-8bit", 37_721_128_672, 893_142_496),
        ("gemma-4-26b-a4b-it-4bit", 15_608_614_044, 1_140_000_000),
        ("gemma-4-26b-a4b-it-8bit", 27_953_417_372, 1_140_000_000),
    ],
)
def test_the_sizes_leave_out_what_is_not_used(repo: str, nbytes: int, tower: int) -> None:
    row = next(row for row in known_models().models if row.repo == f"mlx-community/{repo}")
    assert row.total_bytes + tower == pytest.approx(nbytes, rel=5e-4)
    assert row.text_only


def test_a_published_config_says_the_bytes() -> None:
    published = next(each for each in PUBLISHED if each.repo.endswith("/Qwen3-0.6B-4bit"))
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
