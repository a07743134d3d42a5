"""Access to the API, its timeouts, and the errors when it has no room or no ring."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import inspect
import json
import ssl
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import ANY
from urllib.parse import quote, urlsplit

import httpx2
import psutil
import pytest
from aiohttp import web

from core.errors import NodeError, UsageError
from core.events import PlanProposed, PlanUnloaded
from core.node.base.http_clients import LIMITS
from core.node.base.tasks import Tasks
from core.node.config import ApiOptions
from core.node.public_api import api_answers, http_bodies, listener
from core.node.public_api.admission import MAX_PER_KEY
from core.node.public_api.api_answers import ApiAnswers
from core.requests.api import ApiKeyName
from core.trust.api_certificate import server_context
from core.worker.messages import Prefilled
from tests.support.answers import LOST, ROWS, model
from tests.support.api import KEY, ServedHarness, served_harness
from tests.support.tokenizers import StreamHere
from tests.support.waiting import until

__all__ = ["model"]  # a fixture

PAGE = "http://pages.example"


def port_of(harness: ServedHarness) -> int:
    port = urlsplit(harness.served.url).port
    assert port
    return port


@pytest.mark.promise("T9")
async def test_a_page_may_ask_only_where_its_site_is_listed(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model, ApiOptions(port=0, origins=frozenset({PAGE}))) as harness:
        read = await harness.asker.get("/models", headers={"Origin": PAGE})
        assert (read.status_code, read.headers["Access-Control-Allow-Origin"]) == (200, PAGE)
        wanted = {"Origin": PAGE, "Access-Control-Request-Headers": "authorization"}
        async with httpx2.AsyncClient(base_url=harness.served.url) as keyless:
            asked = await keyless.options("/chat/completions", headers=wanted)
            assert (asked.status_code, asked.headers["Access-Control-Allow-Headers"]) == (204, "authorization")
            assert (await keyless.get("/models", headers={"Origin": PAGE})).status_code == 401
        own = f"http://127.0.0.1:{port_of(harness)}"
        for origin, status in (("http://evil.example", 403), ("null", 403), (own, 200)):
            told = await harness.asker.get("/models", headers={"Origin": origin})
            assert (told.status_code, "Access-Control-Allow-Origin" in told.headers) == (status, False)


async def test_without_a_key_only_where_the_person_says_so_and_only_on_this_mac(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model, ApiOptions(port=0, no_key=True)) as harness:
        async with httpx2.AsyncClient(base_url=harness.served.url) as keyless:
            assert (await keyless.get("/models")).status_code == 200
            assert (await keyless.get("/models", headers={"Host": "evil.example"})).status_code == 403
        assert "without a key" in harness.served.warning
    with pytest.raises(UsageError, match="any machine on the network"):
        ApiOptions(host="0.0.0.0", no_key=True).check()


@pytest.mark.promise("T9")
async def test_headers_are_read_in_any_case_and_name_no_library(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model, ApiOptions(port=0)) as harness:
        scheme, key = harness.asker.headers["Authorization"].split()
        for spelt in (scheme.lower(), scheme.upper()):
            reply = await harness.asker.get("/models", headers={"Authorization": f"{spelt} {key}"})
            assert (reply.status_code, reply.headers["Server"]) == (200, "macluster")


CODINGS = ("gzip", "deflate", "br", "zstd", "lzma")
HEAD = "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: sesame\r\nConnection: close\r\n"


@pytest.mark.promise("T9")
async def test_what_no_handler_can_read_is_refused_in_json_and_is_no_defect(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defects: list[str] = []
    monkeypatch.setattr(Tasks, "log_defect", lambda self, name, error: defects.append(name))
    async with served_harness(tmp_path, model, ApiOptions(port=0)) as harness:
        for head, status, said in (
            *((f"Content-Encoding: {coding}\r\nContent-Length: 4", 400, "can't be decoded") for coding in CODINGS),
            ("no header: 1\r\nContent-Length: 4", 400, "not valid HTTP: Invalid header token"),
            (f"X: {'a' * 9000}\r\nContent-Length: 4", 400, "not valid HTTP: Got more than 8190 bytes"),
            ("Content-Length: 4\r\nContent-Length: 5", 400, "not valid HTTP"),
            ("Transfer-Encoding: chunked", 400, "not valid HTTP"),
            ("Expect: more\r\nContent-Length: 4", 417, "Expect header"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(harness))
            writer.write(f"{HEAD}{head}\r\n\r\nzzzz\r\n".encode())
            async with asyncio.timeout(60):
                fields, _, body = (await reader.read()).decode().partition("\r\n\r\n")
            writer.close()
            assert (fields.split()[1], "Server: macluster" in fields) == (str(status), True), head
            error = json.loads(body)["error"]
            assert (error["type"], said in error["message"]) == ("invalid_request_error", True), body
        for odd, status in (
            (b'"unknown": 1e999', 200),
            (b'"unknown": ' + b"9" * 5000, 200),
            (b'"tools": [1e999]', 400),
        ):
            told = await harness.asker.post("/responses/input_tokens", content=b'{"input": "hello", %s}' % odd)
            assert (told.status_code, defects) == (status, []), told.text
        marked = await harness.asker.post("/messages", content=codecs.BOM_UTF8 + b'{"model": "tiny", "messages": []}')
        assert "messages must be a list of at least 1 entries" in marked.text
        monkeypatch.setattr(ApiAnswers, "offered", lambda self: 1 / 0)
        failed = await harness.asker.get("/models")
        assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
        assert defects == ["An API request"]


@pytest.mark.promise("T9")
async def test_keys_that_cannot_be_read_are_told_to_a_client_without_the_folder(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model) as harness:
        (tmp_path / "keys.json").chmod(0o644)
        for headers in ({}, {"x-api-key": "no"}):
            said = await harness.asker.get("/models", headers=headers)
            assert (said.status_code, "keys" in said.text, str(tmp_path) in said.text) == (503, True, False)


async def test_other_addresses_get_tls_with_the_fingerprint_that_was_shown(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model, ApiOptions(host="0.0.0.0", port=0)) as harness:
        assert harness.served.url.startswith("https://")
        assert not harness.served.warning
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port_of(harness)))
        assert hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown)).hexdigest() == harness.served.fingerprint
        trusting = ssl.create_default_context(cadata=shown)
        async with httpx2.AsyncClient(verify=trusting) as client:
            url = f"https://localhost:{port_of(harness)}/v1/models"
            assert (await client.get(url)).status_code == 401
        for host, status in (("10.9.8.7:4720", 200), ("[fe80::1]:4720", 200), ("evil.example", 403)):
            assert (await harness.asker.get("/models", headers={"Host": host})).status_code == status
        with pytest.raises(httpx2.HTTPError):
            await harness.asker.get(f"http://127.0.0.1:{port_of(harness)}/v1/models")
    async with served_harness(
        tmp_path / "plain", model, ApiOptions(host="0.0.0.0", port=0, plain_http=True)
    ) as harness:
        assert (await harness.asker.get("/models")).status_code == 200
        assert (harness.served.url[:7], "travel unencrypted" in harness.served.warning) == ("http://", True)


def test_the_certificate_stays_until_it_has_to_name_another_address(tmp_path: Path) -> None:
    first = server_context(tmp_path, b"s" * 32, "0.0.0.0")[1]
    assert server_context(tmp_path, b"s" * 32, "127.0.0.1")[1] == first
    assert server_context(tmp_path, b"s" * 32, "203.0.113.7")[1] != first
    assert (tmp_path / "api.pem").stat().st_mode & 0o777 == 0o600
    assert b"ENCRYPTED" in (tmp_path / "api.pem").read_bytes()


def test_a_certificate_is_made_without_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: None)
    context, fingerprint = server_context(tmp_path / "api", bytes(32), "192.0.2.7")
    assert context
    assert len(fingerprint) == 64


@pytest.mark.promise("T9")
async def test_who_says_nothing_or_takes_too_long_is_closed(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served_harness(tmp_path, model) as harness:
        huge = await harness.asker.post("/chat/completions", content=b" " * ((32 << 20) + 1))
        assert (huge.status_code, "error" in huge.json()) == (413, True)
        monkeypatch.setattr(listener, "SILENT_S", 0.1)
        for said in (b"", b"GET /v1/models HTTP/1.1\r\nHost: 127."):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(harness))
            writer.write(said)
            async with asyncio.timeout(60):
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await reader.readexactly(1)
            writer.close()
        monkeypatch.setattr(http_bodies, "BODY_S", 0.1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(harness))
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: sesame\r\nContent-Length: 99\r\n\r\n{"
        )
        writer.write(head.encode())
        async with asyncio.timeout(60):
            assert b" 400 " in await reader.readline()
        writer.close()


@pytest.mark.promise("T9")
@pytest.mark.parametrize("options", [ApiOptions(port=0), ApiOptions(host="0.0.0.0", port=0)])
async def test_clients_without_a_key_keep_no_place_from_one_that_has_it(
    tmp_path: Path, model: Path, options: ApiOptions
) -> None:
    health = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    wrong = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: no\r\n\r\n"
    async with served_harness(tmp_path, model, options) as harness:
        harness.api._listener.clients.most = 2
        others = []
        for said in (health, wrong):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(harness), ssl=_any_certificate(options))
            writer.write(said)
            await reader.readline()
            others.append(writer)
        assert (await harness.asker.get("/models")).status_code == 200
        for _ in range(2):  # these do not even begin a handshake
            others.append((await asyncio.open_connection("127.0.0.1", port_of(harness)))[1])
        assert (await harness.asker.get("/models")).status_code == 200
        headers = harness.asker.headers
        async with httpx2.AsyncClient(base_url=harness.asker.base_url, headers=headers, verify=False) as second:
            assert (await second.get("/models")).status_code == 200
        for writer in others:
            writer.close()


@pytest.mark.promise("T9")
async def test_nothing_more_is_sent_to_a_key_that_is_revoked(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model) as harness:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(harness))
        said = json.dumps({"messages": [{"role": "user", "content": "hello"}], "stream": True})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: {KEY}"
        writer.write(f"{head}\r\nContent-Length: {len(said)}\r\n\r\n{said}".encode())
        await until(lambda: bool(harness.asked))
        (request,) = harness.asked
        harness.writes(request, [5, 6])
        async with asyncio.timeout(60):
            await reader.readuntil(b"data: ")
            harness.control.revoke_key(ApiKeyName(name="tests"))
            harness.writes(request, [7])
            sent = b""
            with suppress(ConnectionError):
                sent = await reader.read()
        writer.close()
        await until(lambda: harness.cancelled == [request.request_id])
        text = harness.told(request)[2].text
        assert text
        assert f'"content":"{text}"'.encode() not in sent
        assert (await harness.asker.get("/models")).status_code == 401


def _any_certificate(options: ApiOptions) -> ssl.SSLContext | None:
    return ssl._create_unverified_context() if options.has_tls else None


def test_every_limit_of_the_library_is_named() -> None:
    limits = {*inspect.signature(web.RequestHandler).parameters}
    assert limits - {"manager", "loop", "logger", "debug"} == {
        *LIMITS,
        *("access_log", "access_log_class", "access_log_format"),
    }


async def test_who_finds_no_room_is_told_when_to_come_again(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model, ApiOptions(port=0, queue=1)) as harness:
        waiting = [asyncio.create_task(harness.chat()) for _ in range(ROWS + 1)]
        await until(lambda: len(harness.asked) == ROWS)
        await until(lambda: len(harness.waiting()) == 1)
        full = await harness.chat()
        assert (full.status_code, int(full.headers["Retry-After"]) >= 1) == (429, True)
        assert full.json()["error"]["code"] == "rate_limit_exceeded"
        harness.ends(harness.asked[0])
        await until(lambda: len(harness.asked) == ROWS + 1)
        for request in harness.asked[1:]:
            harness.ends(request)
        assert {reply.status_code for reply in await asyncio.gather(*waiting)} == {200}
        timing = (await waiting[0]).headers["Server-Timing"]
        assert [part.partition(";")[0] for part in timing.split(", ")] == [
            *("parse", "route", "reserve", "queue_wait", "encode", "dispatch")
        ]


async def test_one_key_asks_so_often_at_a_time(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model) as harness:
        asking = [asyncio.create_task(harness.chat()) for _ in range(MAX_PER_KEY)]
        await until(lambda: len(harness.waiting()) == MAX_PER_KEY - ROWS)
        assert (await harness.asker.get("/models")).status_code == 429
        for task in asking:
            task.cancel()
        await until(lambda: not harness.waiting())
        assert (await harness.asker.get("/models")).status_code == 200


async def test_a_ring_that_says_nothing_and_one_that_is_lost(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_answers, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(http_bodies, "QUIET_S", 0.01)
    async with served_harness(tmp_path, model) as harness:
        asking = asyncio.create_task(harness.chat())
        await until(lambda: bool(harness.asked))
        harness.answers.stop_all(LOST)
        lost = await asking
        assert (lost.status_code, lost.json()["error"]["message"]) == (503, "mini is on fire. Put it out.")
        none = await harness.chat()
        assert (none.status_code, "No model is loaded" in none.text) == (503, True)
    async with served_harness(tmp_path / "silent", model) as harness:
        body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
        began = monotonic()
        async with harness.asker.stream("POST", "/chat/completions", json=body) as streamed:
            lines = aiter(streamed.aiter_lines())
            while await anext(lines) != ": still there":
                pass
            harness.answers.handle_report(Prefilled(request_id=harness.asked[0].request_id, done=1, total=9))
            assert harness.answers.active_at > began
            harness.answers.active_at += 1000.0  # reads for a long time
            monkeypatch.setattr(api_answers, "SILENT_S", 0.0)
            for _ in range(2):
                while await anext(lines) != ": still there":
                    pass
            harness.answers.active_at = began
            assert "No token for" in "".join([line async for line in lines])
        silent = await harness.chat()
        assert (silent.status_code, silent.json()["error"]["type"]) == (503, "server_error")
        assert harness.cancelled == [request.request_id for request in harness.asked]


async def test_while_a_model_loads_a_client_is_told_when_to_ask_again(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served_harness(tmp_path, model) as harness:
        plan = harness.worker.led
        assert plan
        harness.bus.publish(PlanProposed(plan=plan))
        monkeypatch.setattr(harness.answers._tokenizer, "now", lambda: None)
        for path in ("/chat/completions", "/messages", "/responses"):
            body = {"model": plan.name, "messages": [{"role": "user", "content": "hello"}], "input": "hello"}
            early = await harness.asker.post(path, json=body)
            assert (early.status_code, early.headers["Retry-After"]) == (503, "10")
            assert f"{plan.name} is loading. Try again" in early.text
        monkeypatch.undo()
        monkeypatch.setattr(api_answers, "KEEP_ALIVE_S", 0.01)
        monkeypatch.setattr(api_answers, "SILENT_S", 0.0)
        slow = await harness.chat()  # accepted, but the load takes too long
        assert (slow.status_code, slow.headers["Retry-After"]) == (503, "10")


async def test_a_defect_leaves_nobody_waiting(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(StreamHere, "reader")
    async with served_harness(tmp_path, model) as harness:
        failed = await harness.chat()
        assert (failed.status_code, "Internal error" in failed.text) == (503, True)
        await until(lambda: not harness.answers.under_way)


async def test_a_mac_that_does_not_lead_says_who_does(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model) as harness:
        plan = harness.worker.led
        assert plan
        harness.bus.publish(PlanUnloaded(plan_gen=plan.plan_gen))
        harness.worker.plan = plan
        told = await harness.chat()
        assert (told.status_code, f"Ask on {plan.head.peer}." in told.text) == (503, True)


async def test_a_port_that_is_taken_is_told_by_the_option_that_said_it(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model) as harness:
        taken = ApiOptions(port=port_of(harness), port_option="--port")
        with pytest.raises(NodeError) as refused:
            async with served_harness(tmp_path / "second", model, taken):
                pass
        assert "Choose another port: --port." in str(refused.value)


NAMES = ("../toy", "/etc/passwd", "file:///etc/passwd", "http://127.0.0.1:9/model", "toy.pkl")


@pytest.mark.parametrize("path", ["/chat/completions", "/completions", "/messages", "/responses"])
async def test_a_request_names_no_file_no_address_and_no_image(tmp_path: Path, model: Path, path: str) -> None:
    url: Any = {"url": "file:///etc/passwd"}
    parts: Any = (
        *({"type": kind, "image_url": url, "text": ""} for kind in ("image_url", "input_image", "image")),
        *({"type": kind, "file": url, "file_url": url["url"], "text": ""} for kind in ("file", "input_file")),
        {"type": "document", "source": {"type": "url", **url}},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    )
    async with served_harness(tmp_path, model) as harness:

        async def refused(content: object, name: str = "") -> tuple[int, str]:
            turns = [{"role": "user", "content": content}]
            said = {"messages": turns, "input": turns, "prompt": content}
            told = await harness.asker.post(path, json={"model": name, "max_tokens": 1, **said})
            return told.status_code, told.text

        for part in parts:
            assert (await refused([part]))[0] == 400, part["type"]
        for name in NAMES:
            assert await refused("hello", name) == (404, ANY)
            assert (await harness.asker.get(f"/models/{quote(name, safe='')}")).status_code == 404
        assert not harness.asked
