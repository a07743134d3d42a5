"""Answers of an API that another Mac serves, as OpenAI's clients ask for them."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from core.errors import MaclusterError, NodeError, NodeUnreachable, NotPaired, UsageError
from core.requests.answers import ChatRequest
from core.sampling_options import Sampling
from core.text import clean_text
from tui.cli.answering import print_piece
from tui.client import stream_of

if TYPE_CHECKING:
    import httpx2

CONNECT_S: Final = 10.0
SILENT_S: Final = 150.0  # an API of ours ends an answer that says nothing for two minutes


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Error(msgspec.Struct):
    message: str = "The API failed."


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: _Error | None = None


class RemoteApi:
    """The API at `url`, with or without a trailing "/v1"."""

    def __init__(self, url: str, key: str, model: str, certificate: Path | None = None) -> None:
        """`certificate` replaces the authorities that this Mac trusts."""
        self._url = url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self._key, self._model, self._certificate = key, model, certificate

    async def answer(self, asked: ChatRequest, on_text: Callable[[str], None]) -> str:
        """Print the answer as it streams, pass its text to `on_text`, return why it ended. Raises the API's refusal, or
        NodeUnreachable.
        """
        import httpx2

        reason = "stop"
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        timeout = httpx2.Timeout(CONNECT_S, read=SILENT_S)
        verify = _context(self._url, self._certificate)
        try:
            async with (
                httpx2.AsyncClient(timeout=timeout, verify=verify, trust_env=not is_near(self._url)) as http,
                http.stream("POST", self._url, json=body_of(asked, self._model), headers=headers) as reply,
            ):
                if reply.status_code >= 400:
                    await reply.aread()
                    raise _refusal(reply.status_code, _decoded(reply.content).error or _Error())
                thinks = False
                try:
                    async for choice in _choices(reply):
                        if (thought := choice.delta.reasoning_content) and sys.stdout.isatty():
                            thinks = True
                            _print_thought(thought)
                        if text := choice.delta.content:
                            if thinks:
                                print("\n")
                            thinks = False
                            on_text(text)
                            print_piece(text)
                        reason = choice.finish_reason or reason
                finally:
                    print("\n")
        except httpx2.InvalidURL as error:
            raise UsageError(f"{self._url} is not an address.", "For example: --url http://127.0.0.1:4720") from error
        except httpx2.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                what = f"The server at {self._url} has a certificate that this Mac does not trust."
                raise UsageError(what, "Pass the api.crt of that Mac: --certificate FILE.") from error
            what = f"No server answers at {self._url}."
            raise NodeUnreachable(what, "Check that `macluster serve` runs there.") from error
        return reason


def is_near(url: str) -> bool:
    """Whether `url` is of this Mac or its network, so that no proxy of the system may see key and prompt."""
    host = urlsplit(url).hostname or ""
    try:
        return not ip_address(host.partition("%")[0]).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost"))


def body_of(asked: ChatRequest, model: str) -> dict[str, Any]:
    """The request as a chat completion. The API's defaults apply, except the temperature; a constraint is a schema."""
    plain = Sampling()
    chosen = {
        name: value
        for name in Sampling.__struct_fields__
        if not name.endswith("_context") and (value := getattr(asked.sampling, name)) != getattr(plain, name)
    }
    body = {
        "model": model,
        "messages": [{"role": said.role, "content": said.content} for said in asked.messages],
        "max_tokens": asked.max_tokens,
        "temperature": asked.sampling.temperature,
        "stream": True,
    }
    if asked.constraint:
        schema = {"name": "answer", "schema": json.loads(asked.constraint.source), "strict": True}
        chosen["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body | chosen | ({"stop": list(asked.stop)} if asked.stop else {})


def _context(url: str, certificate: Path | None) -> ssl.SSLContext:
    """The TLS context for `url`; raises UsageError if `certificate` is not one."""
    if not url.startswith("https"):  # without a context the library would load every authority
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=certificate)
    except OSError as error:
        raise UsageError(f"{certificate} is not a certificate.", "Copy api.crt from the Mac that serves.") from error


def _print_thought(text: str) -> None:
    clean = clean_text(text)
    print(clean if os.environ.get("NO_COLOR") else f"\x1b[2m{clean}\x1b[0m", end="", flush=True)


async def _choices(reply: httpx2.Response) -> AsyncIterator[_Choice]:
    """Yield each streamed piece; raises errors of the stream."""
    async for said in stream_of(reply):
        if said.strip() == b"[DONE]":
            return
        chunk = _decoded(said)
        if chunk.error:
            raise NodeError(chunk.error.message)
        for choice in chunk.choices:
            yield choice


def _decoded(said: bytes) -> _Chunk:
    try:
        return msgspec.json.decode(said, type=_Chunk)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NodeError("The server is not an OpenAI-compatible API.", "Check the address.") from error


def _refusal(status: int, error: _Error) -> MaclusterError:
    if status in (401, 403):
        return NotPaired(error.message, "Pass its key: --key KEY.")
    return UsageError(error.message) if status < 500 and status != 429 else NodeError(error.message)
