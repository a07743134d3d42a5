"""A model that can't run is refused before its weights are downloaded, and the hub's refusals are explained."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import httpx2
import msgspec
import pytest
from huggingface_hub.errors import DisabledRepoError, GatedRepoError, HfHubHTTPError

from core.errors import BadModel, ModelError, TransferError
from core.models.files import hub_download, hub_download_parts, hub_reader
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.catalog import Catalog
from core.models.files.hub_download import explained
from core.models.files.hub_download_messages import BeginOrder, Fetched, FetchOrder
from core.models.files.hub_reader import FIRST_WAIT_S, Patience
from core.models.files.safetensors import INDEX_NAME
from tests.support.hub import Hub, point_at, running_hub
from tests.support.maker import make_model
from tests.support.models import read_entry, scan


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    make_model(tmp_path / "repo", "llama", layers=1, files=2)
    async with running_hub(tmp_path / "repo", "acme/toy") as hub:
        point_at(monkeypatch, hub)
        yield hub


def configured(**changes: object) -> Callable[[Path], object]:
    def edit(repo: Path) -> None:
        config = json.loads((repo / "config.json").read_text()) | changes
        (repo / "config.json").write_text(json.dumps(config))

    return edit


def coded(repo: Path) -> None:
    (repo / "tokenizer.json").rename(repo / "tiktoken.model")


def adapter(repo: Path) -> None:
    shutil.copy(repo / "config.json", repo / "adapter_config.json")
    (repo / "config.json").unlink()


def consolidated(repo: Path) -> None:
    for file in repo.glob("model*"):
        file.unlink()
    (repo / "consolidated.safetensors").write_bytes(b"x")


def without_a_file(repo: Path) -> None:
    (repo / "model-00002-of-00002.safetensors").unlink()


def only_gguf(repo: Path) -> None:
    for file in repo.glob("model*"):
        file.unlink()
    (repo / "x.gguf").touch()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (configured(model_type="superllm9"), "does not know the architecture 'superllm9'"),
        (configured(quantization_config={"quant_method": "bitsandbytes"}), "quantised as bitsandbytes"),
        (coded, "tokenizer as code"),
        (adapter, "LoRA adapter"),
        (consolidated, "maker's own form"),
        (without_a_file, "model-00002-of-00002.safetensors is missing"),
        (only_gguf, "GGUF weights"),
    ],
)
async def test_what_cannot_run_is_refused_before_its_weights_come(
    hub: Hub, tmp_path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(hub.folder)
    whole = FetchOrder(repo="acme/toy", revision="main", cache=str(tmp_path / "cache"))
    with pytest.raises(ModelError, match=words) as caught:
        await asyncio.to_thread(hub_download.fetch, whole, lambda _: None, ByteRateLimit())
    assert not [name for name in hub.served if name.endswith(".safetensors")]
    assert "again" not in caught.value.fix
    split = BeginOrder(repo="acme/toy", revision="main", below=str(tmp_path / "models"))
    with pytest.raises(ModelError, match=words):
        await asyncio.to_thread(hub_download_parts.begin, split, lambda _: None)
    assert not (tmp_path / "models").exists(), "nothing is left behind"


async def test_a_disk_that_seems_too_full_is_filled_if_the_person_says_so(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.models.files.block_writer.shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    order = FetchOrder(repo="acme/toy", revision="main", cache=str(tmp_path / "cache"))
    with pytest.raises(TransferError, match="too little"):
        await asyncio.to_thread(hub_download.fetch, order, lambda _: None, ByteRateLimit())
    anyway = msgspec.structs.replace(order, anyway=True)
    await asyncio.to_thread(hub_download.fetch, anyway, lambda _: None, ByteRateLimit())
    assert [entry.name for entry in Catalog([tmp_path / "cache"]).survey()] == ["acme/toy"]


async def test_a_gated_model_that_was_refused_is_no_unfinished_download(hub: Hub, tmp_path: Path) -> None:
    hub.fault = lambda name, number: "gated"
    whole = FetchOrder(repo="acme/toy", revision="main", cache=str(tmp_path / "cache"))
    with pytest.raises(GatedRepoError) as caught:
        await asyncio.to_thread(hub_download.fetch, whole, lambda _: None, ByteRateLimit())
    assert explained(caught.value, "acme/toy").what.startswith("acme/toy is gated")
    assert Catalog([tmp_path / "cache"]).survey() == []


async def test_a_model_that_came_in_parts_keeps_the_name_of_its_repository(hub: Hub, tmp_path: Path) -> None:
    told = list[Fetched]()
    order = BeginOrder(repo="acme/toy", revision="main", below=str(tmp_path / "models"))
    await asyncio.to_thread(hub_download_parts.begin, order, told.append)
    assert [entry.name for entry in scan([tmp_path / "models"])] == ["acme/toy"]
    place = Path(told[-1].place)
    (place / "tokenizer.json").unlink()
    with pytest.raises(BadModel, match=r"^acme/toy has no tokenizer"):
        read_entry(place)


async def test_an_index_that_is_left_over_on_the_hub_hinders_nobody(hub: Hub, tmp_path: Path) -> None:
    (hub.folder / INDEX_NAME).unlink()
    make_model(hub.folder, "llama", layers=1, files=1)
    (hub.folder / "model-00002-of-00002.safetensors").unlink()
    (hub.folder / "model-00001-of-00002.safetensors").unlink()
    (hub.folder / "model-00001-of-00001.safetensors").rename(hub.folder / "model.safetensors")
    whole = FetchOrder(repo="acme/toy", revision="main", cache=str(tmp_path / "cache"))
    await asyncio.to_thread(hub_download.fetch, whole, lambda _: None, ByteRateLimit())


def refusal(status: int, kind: type[HfHubHTTPError] = HfHubHTTPError, /, **headers: str) -> HfHubHTTPError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return kind(
        "no", response=httpx2.Response(status, headers=named, request=httpx2.Request("GET", "https://x.example"))
    )


@pytest.mark.parametrize(
    ("error", "what", "fix"),
    [
        (refusal(401, x_error_message="Invalid credentials"), "HTTP 401: Invalid credentials.", "valid token"),
        (refusal(403), "HTTP 403.", "may read this repository"),
        (refusal(403, DisabledRepoError), "disabled acme/toy", "another repository"),
        (refusal(429), "HTTP 429", "how often"),
        (refusal(503), "HTTP 503", "later"),
        (msgspec.DecodeError("JSON is malformed"), "A web page came", "login"),
    ],
)
def test_each_refusal_of_the_hub_has_its_own_words(error: Exception, what: str, fix: str) -> None:
    told = explained(error, "acme/toy")
    assert what in told.what
    assert fix in told.fix


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, 0.0),
        ({"ratelimit": '"resolvers";r=0;t=40'}, 40.0),
        ({"ratelimit": '"api"; r=0; t=55', "retry_after": "8"}, 55.0),
        ({"ratelimit": '"api";r=7;t=55', "retry_after": "8"}, 8.0),
    ],
)
def test_a_limited_request_waits_as_long_as_the_hub_says_and_reports_it(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], wait_s: float
) -> None:
    told, waited = list[Fetched](), list[float]()
    patience = Patience(told.append)
    monkeypatch.setattr(patience.stop, "wait", waited.append)
    monkeypatch.setattr(hub_reader, "time", lambda: 1000.0)
    patience.wait(refusal(429, HfHubHTTPError, **headers), 1)
    assert waited == [max(wait_s, FIRST_WAIT_S)]
    assert [each.waits_until for each in told] == [1000.0 + wait_s] * bool(wait_s)
