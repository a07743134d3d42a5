"""A hub, a file store or a connection to them that can't be trusted, and what each can reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from core.errors import TransferError
from core.models.files import hub_download_parts, hub_download_whole, hub_reader
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.hub_download_messages import BeginOrder, FetchOrder
from core.models.files.hub_reader import check_endpoint, headers_for, redirected
from core.models.made.maker import make_model
from tests.support.hub import Hub, point_at, running_hub


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    make_model(tmp_path / "repo", "llama", layers=2)
    async with running_hub(tmp_path / "repo", "acme/toy") as hub:
        point_at(monkeypatch, hub)
        monkeypatch.setattr(hub_reader, "FIRST_WAIT_S", 0.01)
        monkeypatch.setattr(hub_reader, "TRIES", 2)
        yield hub


@pytest.mark.promise("P25")
async def test_a_hub_that_sends_more_than_it_said_fills_no_disk(tmp_path: Path, hub: Hub) -> None:
    hub.fault = lambda name, number: "long"
    order = FetchOrder(repo="acme/toy", revision="main", cache=str(tmp_path / "cache"))
    with pytest.raises(TransferError, match="sent more of"):
        await asyncio.to_thread(hub_download_whole.fetch, order, lambda _: None, ByteRateLimit())
    whole = sum(file.stat().st_size for file in hub.folder.iterdir())
    assert sum(f.stat().st_size for f in (tmp_path / "cache").rglob("*") if f.is_file()) <= whole


@pytest.mark.promise("P38")
async def test_the_token_of_the_hub_goes_to_the_hub_alone(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    order = BeginOrder(repo="acme/toy", revision="main", below=str(tmp_path / "models"))
    await asyncio.to_thread(hub_download_parts.begin, order, lambda _: None)
    assert hub.tokens == {"hub": {"Bearer hf_secret"}, "store": {""}}


def test_a_token_is_for_the_very_address_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(constants, "ENDPOINT", "https://huggingface.co")
    goes = {
        place: "authorization" in headers_for(place)
        for place in ("https://huggingface.co/x", "https://store.example/x", "http://huggingface.co/x")
    }
    assert list(goes.values()) == [True, False, False]


@pytest.mark.parametrize(
    ("endpoint", "is_good"),
    [
        ("https://mirror.example", True),
        ("http://127.0.0.1:8080", True),
        ("http://mirror.example", False),
        ("http://127.0.0.1.example", False),
    ],
)
@pytest.mark.promise("P39")
def test_parts_come_over_tls_alone(monkeypatch: pytest.MonkeyPatch, endpoint: str, is_good: bool) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    if is_good:
        check_endpoint()
    else:
        with pytest.raises(TransferError, match="no https address"):
            check_endpoint()


@pytest.mark.promise("P39")
def test_no_reply_leads_out_of_tls() -> None:
    assert redirected("https://hub.example/a/b", "../c") == "https://hub.example/c"
    with pytest.raises(TransferError, match="without TLS"):
        redirected("https://hub.example/a", "http://store.example/a")
