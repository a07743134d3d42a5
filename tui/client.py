"""Talks to this Mac's node over its unix socket. The tui, the CLI and the tests use the same client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TypeVar

import httpx2
import msgspec

from core.errors import NodeUnreachable, Problem, error_from
from core.events import AnyEvent, decode_event
from core.requests import (
    Address,
    Body,
    ChatRequest,
    Digits,
    Done,
    LoadRequest,
    ModelChoice,
    PairingOffer,
    PairingWindow,
    PlanPreview,
    PlanRequest,
    RequestAccepted,
)
from core.settings import Home

_T = TypeVar("_T")

ANSWER_S = 30.0
LOAD_S = 120.0


class NodeClient:
    """Commands and events of one node. Use as an async context manager."""

    def __init__(self, home: Home) -> None:
        transport = httpx2.AsyncHTTPTransport(uds=str(home.socket))
        self._http = httpx2.AsyncClient(transport=transport, base_url="http://node")

    async def __aenter__(self) -> NodeClient:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def events(self) -> AsyncIterator[AnyEvent]:
        """A `Snapshot` first, then every event as it happens; ends when the node goes away.

        Raises NodeUnreachable if no node listens.
        """
        try:
            async with self._http.stream("GET", "/v1/events", timeout=httpx2.Timeout(10.0, read=None)) as reply:
                async for line in reply.aiter_lines():
                    if line.startswith("data: "):
                        yield decode_event(line[len("data: ") :])
        except httpx2.ConnectError as error:
            raise NodeUnreachable("No node answers on this Mac.") from error
        except httpx2.TransportError:
            return

    async def models(self) -> list[ModelChoice]:
        """Models on this Mac with how each would fit the paired Macs."""
        return await self._call("GET", "/v1/models", None, list[ModelChoice])

    async def plan(self, request: PlanRequest) -> PlanPreview:
        """What `load` would do, without doing it; a model that nobody has examined yet takes seconds."""
        return await self._call("POST", "/v1/plan", request, PlanPreview, timeout_s=LOAD_S)

    async def load(self, request: LoadRequest) -> PlanPreview:
        """Start loading; returns at once, PlanLoaded or PlanFailed follows as an event."""
        return await self._call("POST", "/v1/load", request, PlanPreview, timeout_s=LOAD_S)

    async def unload(self) -> None:
        """Unload the model, or cancel the load that is running."""
        await self._call("POST", "/v1/unload", None, Done)

    async def chat(self, request: ChatRequest) -> RequestAccepted:
        """Start an answer; its TokenEvents and its RequestDone follow as events."""
        return await self._call("POST", "/v1/chat", request, RequestAccepted)

    async def cancel(self, request_id: str) -> None:
        """Stop an answer; what is written stays."""
        await self._call("DELETE", f"/v1/chat/{request_id}", None, Done)

    async def know(self, address: Address) -> None:
        """Tell the node where another Mac is, for networks without multicast."""
        await self._call("POST", "/v1/peers", address, Done)

    async def open_pairing(self) -> PairingWindow:
        """Open this Mac's pairing window; PairingChanged events follow."""
        return await self._call("POST", "/v1/pairing/open", None, PairingWindow)

    async def offer_pairing(self, offer: PairingOffer) -> None:
        """Begin to pair with the Mac whose window is open; PairingChanged events follow."""
        await self._call("POST", "/v1/pairing/offer", offer, Done)

    async def type_digits(self, digits: Digits) -> None:
        """Give the digits that the person read on the other Mac."""
        await self._call("POST", "/v1/pairing/digits", digits, Done)

    async def _call(self, method: str, path: str, body: Body | None, kind: type[_T], timeout_s: float = ANSWER_S) -> _T:
        content = None if body is None else msgspec.json.encode(body)
        try:
            reply = await self._http.request(method, path, content=content, timeout=timeout_s)
        except httpx2.TransportError as error:
            raise NodeUnreachable(f"The node of this Mac does not answer ({type(error).__name__}).") from error
        if reply.status_code >= 400:
            raise error_from(_problem_of(reply))
        return msgspec.json.decode(reply.content, type=kind)


def _problem_of(reply: httpx2.Response) -> Problem:
    """What the node says; an answer that is no Problem comes from a defect of the node or from its HTTP library."""
    try:
        return msgspec.json.decode(reply.content, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Problem(kind="NodeError", what=f"The node failed (HTTP {reply.status_code}).", fix="Its log says more.")
