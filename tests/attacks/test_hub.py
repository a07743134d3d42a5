"""A hub, a file store or a connection to them that can't be trusted, and what each can reach."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
from aiohttp import web
from huggingface_hub import constants

from core.errors import NodeError, TransferError
from core.events import Transfer
from core.models.files import hub_download, hub_download_parts, hub_files, hub_reader
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.catalog import Catalog
from core.models.files.child_start import ChildStart
from core.models.files.hub_download_messages import BeginOrder, FetchOrder
from core.models.files.hub_reader import check_endpoint, headers_for, redirected
from core.node.disks import hub_transfers
from core.node.disks.transfer_progress import QueuedTransfer, TransferProgress
from tests.support.hub import Hub, point_at, running_hub
from tests.support.maker import make_model


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
        await asyncio.to_thread(hub_download.fetch, order, lambda _: None, ByteRateLimit())
    whole = sum(file.stat().st_size for file in hub.folder.iterdir())
    assert sum(f.stat().st_size for f in (tmp_path / "cache").rglob("*") if f.is_file()) <= whole


async def fetch(tmp_path: Path) -> None:
    order = FetchOrder(repo="acme/toy", revision="main", cache=str(tmp_path / "cache"))
    await asyncio.to_thread(hub_download.fetch, order, lambda _: None, ByteRateLimit())


@pytest.mark.promise("P25")
async def test_what_a_hub_says_of_a_file_later_is_no_path_and_replaces_nothing(tmp_path: Path, hub: Hub) -> None:
    hub.claimed = {"config.json": str(tmp_path / "evil"), "tokenizer.json": "../../../evil"}
    await fetch(tmp_path)
    cache = tmp_path / "cache"
    assert set(os.listdir(tmp_path)) == {"repo", "cache"}
    (snapshot,) = cache.glob("models--acme--toy/snapshots/*")
    files = {file.name: file.read_bytes() for file in snapshot.iterdir()}
    assert files == {file.name: file.read_bytes() for file in hub.folder.iterdir() if file.name in files}
    assert {file.resolve().parent for file in snapshot.iterdir()} == {cache / "models--acme--toy" / "blobs"}
    assert [entry.name for entry in Catalog([cache]).survey()] == ["acme/toy"]
    assert (cache / "models--acme--toy" / "refs" / "main").read_text() == hub.commit


@pytest.mark.promise("P25")
async def test_a_commit_that_is_a_path_is_none(tmp_path: Path, hub: Hub) -> None:
    hub.commit = "../../../evil"
    with pytest.raises(TransferError, match="in a form that macluster doesn't know"):
        await fetch(tmp_path)
    assert set(os.listdir(tmp_path)) == {"repo"}


async def test_files_with_the_same_content_come_once(tmp_path: Path, hub: Hub) -> None:
    for name in ("a.json", "b.json", "c.json"):
        (hub.folder / name).write_text("{ }")
    await fetch(tmp_path)
    (snapshot,) = (tmp_path / "cache").glob("models--acme--toy/snapshots/*")
    assert {(snapshot / name).read_text() for name in ("a.json", "b.json", "c.json")} == {"{ }"}
    assert sum(hub.served[name] for name in ("a.json", "b.json", "c.json")) == 3


def endless(page: web.Response) -> None:
    page.headers["Link"] = '<?page=2>; rel="next"'


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (endless, "list of files is too long"),
        (lambda page: page.enable_compression(web.ContentCoding.gzip), "sent its list of files compressed"),
        (lambda page: setattr(page, "body", b" " * 2 * hub_files.MAX_LISTING_BYTES), "list of files is too long"),
    ],
)
async def test_a_list_of_files_has_limits(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, change: Callable[[web.Response], object], says: str
) -> None:
    monkeypatch.setattr(hub_files, "MAX_LISTING_BYTES", 1 << 16)
    monkeypatch.setattr(hub_files, "MAX_PAGES", 3)
    hub.page = change
    with pytest.raises(TransferError, match=says):
        await fetch(tmp_path)


async def test_a_download_ends_at_its_limit_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_transfers, "MAX_RSS_BYTES", 0)
    first = Transfer(model="acme/toy", mac="", state="asking")
    progress = TransferProgress(QueuedTransfer(first=first), lambda *_: None)
    order = FetchOrder(repo="acme/toy", revision="main", cache=str(tmp_path / "cache"))
    with pytest.raises(TransferError, match="MiB of memory"):
        await hub_transfers.download(order, "acme/toy", progress, lambda *_: None)


async def test_a_download_that_ended_before_its_memory_was_looked_at_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pid: int) -> NoReturn:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", gone)
    monkeypatch.setattr(hub_transfers, "ChildStart", lambda _, **words: ChildStart("core.no_such_module", **words))
    progress = TransferProgress(QueuedTransfer(first=Transfer(model="m", mac="", state="asking")), lambda *_: None)
    order = FetchOrder(repo="acme/toy", revision="main", cache=str(tmp_path))
    with pytest.raises(NodeError, match="cannot start"):
        await hub_transfers.download(order, "acme/toy", progress, lambda *_: None)


@pytest.mark.promise("P38")
async def test_the_next_page_of_a_list_gets_no_token_elsewhere(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.page = lambda page: page.headers.update({"Link": f'<{hub.store}/config.json>; rel="next"'})
    with pytest.raises(TransferError, match="in a form that macluster doesn't know"):
        await fetch(tmp_path)
    assert hub.tokens == {"hub": {"Bearer hf_secret"}, "store": {""}}


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
