"""Answers of another Mac's API: the printed stream, and the errors."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from core.errors import NodeError, NodeUnreachable, NotPaired, UsageError
from core.requests.answers import ChatRequest, Message
from tui.cli.remote_api import RemoteApi, is_near

ASKED = ChatRequest(messages=(Message(role="user", content="hi"),))
THOUGHTS: list[dict[str, Any]] = [{"reasoning_content": "he greets"}, {"content": "Hel"}, {"content": "lo\x1b[2J"}]


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    """An API whose reply depends on the model's name."""

    async def answer(request: web.Request) -> web.StreamResponse:
        match (await request.json())["model"]:
            case "refused":
                error = {"message": f"Not with {request.headers.get('Authorization')}."}
                return web.json_response({"error": error}, status=401)
            case "foreign":
                return web.Response(text="<html>", status=404)
            case model:
                said: list[Any] = [{"choices": [{"delta": delta}]} for delta in THOUGHTS]
                said.append({"error": {"message": "It broke."}} if model == "broken" else {"choices": []})
                said.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
                reply = web.StreamResponse()
                await reply.prepare(request)
                for chunk in said:
                    await reply.write(b": still there\n\ndata: " + msgspec.json.encode(chunk) + b"\n\n")
                await reply.write(b"data: [DONE]\n\n")
                return reply

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_words_are_heard_and_thoughts_are_shown_to_a_person_alone(
    url: str, is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    heard: list[str] = []
    assert await RemoteApi(f"{url}/v1/", "k", "toy").answer(ASKED, heard.append) == "length"
    assert heard == ["Hel", "lo\x1b[2J"]
    told = capsys.readouterr().out
    assert told.startswith("\x1b[2mhe greets\x1b[0m\n\nHello" if is_terminal else "Hello")
    assert "\x1b[2J" not in told


async def test_what_fails_is_told_with_the_cure(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    for model, error, words in (
        ("refused", NotPaired, "Not with Bearer k. Pass its key"),
        ("foreign", NodeError, "not an OpenAI-compatible API"),
        ("broken", NodeError, "It broke."),
    ):
        with pytest.raises(error, match=words):
            await RemoteApi(url, "k", model).answer(ASKED, heard.append)
    assert "".join(heard) == "Hello\x1b[2J", "what came before it broke"
    assert capsys.readouterr().out.startswith("Hello"), "nothing is printed of what was refused"
    with pytest.raises(NodeUnreachable):
        await RemoteApi("http://127.0.0.1:1", "", "toy").answer(ASKED, heard.append)
    with pytest.raises(UsageError, match="is not a certificate"):
        await RemoteApi("https://127.0.0.1:1", "", "toy", Path(__file__)).answer(ASKED, heard.append)


async def test_no_proxy_of_the_system_sees_what_goes_to_a_mac_at_home(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a Mac the proxies come from System Settings, and their exceptions are not looked at."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert await RemoteApi(url, "k", "toy").answer(ASKED, lambda _: None) == "length"
    assert capsys.readouterr().out.startswith("Hello")


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("127.0.0.1:4720", True),
        ("localhost:4720", True),
        ("192.168.1.7", True),
        ("[fe80::1%25en0]:4720", True),
        ("[fd00::7]", True),
        ("studio", True),
        ("studio.local:4720", True),
        ("api.example.com", False),
        ("8.8.8.8", False),
        ("[2001:4860:4860::8888]", False),
    ],
)
def test_what_is_at_home(host: str, near: bool) -> None:
    assert is_near(f"https://{host}/v1/chat/completions") is near
