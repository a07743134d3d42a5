"""Talks to this Mac's node over its unix socket. The tui, the CLI and the tests use the same client.

The HTTP library takes a tenth of a second to import, so that is done with the first call: the screen is there before.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from core import errors
from core.events import AnyEvent, ApiServed, decode_event
from core.field_errors import plain
from core.requests import trust as trust_requests
from core.requests.answers import AnswerId, ChatRequest, RequestAccepted, UnfinishedAnswer
from core.requests.api import ApiKeyName, NewApiKey
from core.requests.body import Body, Done, without_defaults
from core.requests.checks import Finding, SpeedRequest, SpeedResult
from core.requests.conversations import (
    Conversation,
    ConversationId,
    ConversationInfo,
    SavedSession,
    SearchText,
    SessionName,
)
from core.requests.disks import CopyRequest, DiskUse, DownloadRequest, TransferOrder, Trimmable, TrimRequest
from core.requests.plans import LoadRequest, ModelChoice, PlanPreview, PreviewRequest, RecoveryOrder
from core.requests.restart import RestartOrder, RestartReport
from core.requests.trace import TraceRequest, TraceResult
from core.settings import Home
from core.version import HEADER, difference, is_too_old, local_header

if TYPE_CHECKING:
    import httpx2

_T = TypeVar("_T")
_B = TypeVar("_B", bound=Body)

ANSWER_S = 30.0
QUIET_S = 1.0  # between two looks whether answers have ended
LOAD_S = 120.0
_DATA = b"data: "


def _get(path: str, reply: type[_T], method: str = "GET") -> Callable[[NodeClient], Coroutine[Any, Any, _T]]:
    async def call(client: NodeClient) -> _T:
        return await client._call(method, path, None, reply)

    return call


def _order(path: str, reply: type[_T]) -> Callable[[NodeClient], Coroutine[Any, Any, _T]]:
    return _get(path, reply, "POST")


def _post(
    path: str, body: type[_B], reply: type[_T], timeout_s: float | None = ANSWER_S
) -> Callable[[NodeClient, _B], Coroutine[Any, Any, _T]]:
    async def call(client: NodeClient, request: _B) -> _T:
        return await client._call("POST", path, request, reply, timeout_s)

    return call


class NodeClient:
    """Commands and events of one node; most commands are a path with the types of its body and its reply.

    Use as an async context manager.
    """

    def __init__(self, home: Home) -> None:
        self.home = home

    @cached_property
    def _http(self) -> httpx2.AsyncClient:
        import httpx2

        # no TLS on a unix socket; without this context the library would load all authorities
        no_authorities = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        transport = httpx2.AsyncHTTPTransport(uds=str(self.home.socket), verify=no_authorities)
        return httpx2.AsyncClient(transport=transport, base_url="http://node", headers={HEADER: local_header()})

    async def __aenter__(self) -> NodeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        if "_http" in self.__dict__:
            await self._http.aclose()

    async def events(self) -> AsyncIterator[AnyEvent]:
        """A `Snapshot` first, then every event until the node ends. Raises NodeUnreachable if no node listens."""
        import httpx2

        try:
            async with self._http.stream("GET", "/v1/events", timeout=httpx2.Timeout(10.0, read=None)) as reply:
                async for event in _values(reply, decode_event):
                    yield event
        except httpx2.ConnectError as error:
            raise self._gone(error) from error
        except httpx2.TransportError:
            return

    models = _get("/v1/models", list[ModelChoice])
    # Models on the hub that are on no disk, and how each would fit the paired Macs; best fit first.
    known_models = _get("/v1/models/known", list[ModelChoice])
    # Start downloading a model; Transfer events follow. Continues what an earlier try left.
    download = _post("/v1/downloads", DownloadRequest, Done)
    copy = _post("/v1/copies", CopyRequest, Done)

    async def change_transfers(self, order: TransferOrder) -> None:
        await self._call("POST", f"/v1/transfers/{order.what}", order, Done)

    disks = _get("/v1/disks", list[DiskUse])
    # Parts of models on this disk that no plan needs; deletes them if `go` is set.
    trim = _post("/v1/trim", TrimRequest, list[Trimmable], LOAD_S)
    # Preview what `load` would do; takes seconds for a model that was never examined.
    plan = _post("/v1/plan", PreviewRequest, PlanPreview, LOAD_S)
    # Start loading; returns at once. PlanLoaded or PlanFailed follows as an event.
    load = _post("/v1/load", LoadRequest, PlanPreview, LOAD_S)
    # Unload the model, or cancel the load that is running.
    unload = _order("/v1/unload", Done)
    # Start an answer; its TokenEvents and its RequestDone follow as events.
    chat = _post("/v1/chat", ChatRequest, RequestAccepted)

    @asynccontextmanager
    async def attended(self, asked: ChatRequest | AnswerId) -> AsyncIterator[RequestAccepted]:
        """Start an answer, or continue one. The node cancels it if the block, or this process, ends before."""
        import httpx2

        path = "/v1/chat/attended" if isinstance(asked, ChatRequest) else "/v1/answers/continue/attended"
        content = msgspec.json.encode(without_defaults(asked))
        try:
            async with (
                self._http.stream("POST", path, content=content, timeout=ANSWER_S) as reply,
                aclosing(_values(reply, msgspec.json.Decoder(RequestAccepted).decode)) as values,
            ):
                yield await anext(values)
        except httpx2.TransportError as error:
            raise self._gone(error) from error

    async def cancel(self, request_id: str) -> None:
        await self._call("POST", f"/v1/chat/{quote(request_id)}/stop", None, Done)

    restart = _post("/v1/restart", RestartOrder, RestartReport)

    async def restart_when_quiet(self) -> None:
        """Restart the node as soon as no answer is being written."""
        while True:
            with suppress(errors.Busy):
                await self.restart(RestartOrder(go=True))
                return
            await asyncio.sleep(QUIET_S)

    # Measure a hop; Progress events of the task "speed test" report how far it is.
    test_speed = _post("/v1/speedtest", SpeedRequest, SpeedResult)
    # Stop the running test; the call that waits for it fails.
    stop_speed_test = _order("/v1/speedtest/stop", Done)
    trace = _post("/v1/trace", TraceRequest, TraceResult, None)
    # Choose how to recover a plan that lost a Mac; Recovery events follow.
    choose = _post("/v1/recovery", RecoveryOrder, Done)
    # Answers that were cut off and can be continued, the newest first.
    unfinished = _get("/v1/answers", list[UnfinishedAnswer])
    go_on = _post("/v1/answers/continue", AnswerId, RequestAccepted)
    # Saved sessions on this Mac; unreadable ones carry a problem.
    sessions = _get("/v1/sessions", list[SavedSession])

    async def session(self, wanted: SessionName) -> SavedSession:
        return await self._call("GET", _session(wanted), None, SavedSession)

    async def save_session(self, wanted: SessionName) -> SavedSession:
        """Save the conversation whose answer ended last; replaces a session of that name."""
        return await self._call("PUT", _session(wanted), None, SavedSession, timeout_s=None)

    async def load_session(self, wanted: SessionName) -> SavedSession:
        return await self._call("POST", f"{_session(wanted)}/load", None, SavedSession, timeout_s=None)

    # Stop saving or loading; nothing of it is left.
    stop_session = _order("/v1/sessions/stop", Done)

    async def delete_session(self, wanted: SessionName) -> None:
        await self._call("DELETE", _session(wanted), None, Done)

    # Saved conversations, newest first; damaged ones carry a problem.
    conversations = _get("/v1/conversations", list[ConversationInfo])
    find_conversations = _post("/v1/conversations/search", SearchText, list[ConversationInfo])

    async def conversation(self, wanted: ConversationId) -> Conversation:
        return await self._call("GET", f"/v1/conversations/{wanted.id}", None, Conversation)

    async def keep_conversation(self, conversation: Conversation) -> None:
        """Save a conversation, or a change: UsageError if the saved one isn't what it changes."""
        await self._call("PUT", f"/v1/conversations/{conversation.id}", conversation, Done)

    async def delete_conversation(self, wanted: ConversationId) -> None:
        await self._call("DELETE", f"/v1/conversations/{wanted.id}", None, Done)

    # Add the address of another Mac, for networks without multicast.
    know = _post("/v1/peers", trust_requests.Address, Done)
    # Look for all Macs now; what is found follows as events. Raises UsageError if Bonjour is off.
    rescan = _order("/v1/rescan", Done)

    async def check(self) -> AsyncIterator[Finding]:
        import httpx2

        try:
            async with self._http.stream("GET", "/v1/check", timeout=ANSWER_S) as reply:
                async for finding in _values(reply, msgspec.json.Decoder(Finding).decode):
                    yield finding
        except httpx2.TransportError as error:
            raise self._gone(error) from error

    # Open this Mac's pairing window; PairingChanged events follow.
    open_pairing = _order("/v1/pairing/open", trust_requests.PairingWindow)
    # Pair with the Mac whose pairing window is open at an address; PairingChanged events follow.
    offer_pairing = _post("/v1/pairing/offer", trust_requests.PairingOffer, Done)
    type_digits = _post("/v1/pairing/digits", trust_requests.Digits, Done)
    pair_with = _post("/v1/pairing", trust_requests.PairWith, Done)
    # Close this Mac's pairing window and stop a running pairing; nothing is saved.
    stop_pairing = _order("/v1/pairing/stop", Done)
    trust = _get("/v1/trust", trust_requests.TrustView)
    # Revoke a Mac for good: its links close on every member. Only an admin Mac can.
    revoke = _post("/v1/trust/revoke", trust_requests.Target, trust_requests.TrustView)
    promote = _post("/v1/trust/promote", trust_requests.Target, trust_requests.TrustView)
    demote = _post("/v1/trust/demote", trust_requests.Target, trust_requests.TrustView)
    rename = _post("/v1/trust/rename", trust_requests.Rename, trust_requests.TrustView)
    # Give this Mac a new key; an admin Mac must be connected, or be this one.
    rotate = _order("/v1/trust/rotate", trust_requests.TrustView)
    # Make new recovery words; old ones stop working.
    new_recovery = _order("/v1/trust/recovery", trust_requests.RecoveryWords)
    # Make this Mac admin with the recovery words; returns the next words.
    recover = _post("/v1/trust/recover", trust_requests.RecoveryPhrase, trust_requests.RecoveryWords)
    resolve_fork = _post("/v1/trust/resolve", trust_requests.ForkChoice, trust_requests.TrustView)
    start_api = _order("/v1/api/start", ApiServed)
    # Stop serving; requests in progress are cut off.
    stop_api = _order("/v1/api/stop", Done)
    # Make a key for another program; the only call that returns the key itself.
    new_api_key = _post("/v1/api/keys", ApiKeyName, NewApiKey)

    async def revoke_api_key(self, wanted: ApiKeyName) -> None:
        await self._call("DELETE", f"/v1/api/keys/{_segment(wanted.name)}", None, Done)

    def _gone(self, error: httpx2.TransportError) -> errors.NodeUnreachable:
        import httpx2

        if isinstance(error, httpx2.ConnectError):
            from core.node.base.last_run import unreachable

            return unreachable(self.home)
        how = "didn't answer in time" if isinstance(error, httpx2.TimeoutException) else "ended before it answered"
        return errors.NodeUnreachable(f"macluster's service on this Mac {how}.")

    async def _call(
        self, method: str, path: str, body: Body | None, kind: type[_T], timeout_s: float | None = ANSWER_S
    ) -> _T:
        import httpx2

        content = None if body is None else msgspec.json.encode(without_defaults(body))
        try:
            reply = await self._http.request(method, path, content=content, timeout=timeout_s)
        except httpx2.TransportError as error:
            raise self._gone(error) from error
        if reply.status_code >= 400:
            raise _refusal(reply)
        if is_too_old(reply.headers.get(HEADER, "")) and kind is not RestartReport:
            raise _unreadable(reply)
        try:
            return msgspec.json.decode(reply.content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _unreadable(reply) from error


async def is_listening(home: Home) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(home.socket))
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def check(request: Body) -> None:
    """Check a request's limits before it is sent. Raises UsageError."""
    try:
        msgspec.json.decode(msgspec.json.encode(request), type=type(request))
    except msgspec.ValidationError as error:
        raise errors.UsageError(f"Invalid request: {plain(error)}.") from error


async def stream_of(reply: httpx2.Response) -> AsyncIterator[bytes]:
    """The data of each event of a stream. Splits at line feeds only: texts may contain other line ends of str."""
    rest = b""
    async for piece in reply.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                yield line[len(_DATA) :]


async def _values(reply: httpx2.Response, decode: Callable[[bytes], _T]) -> AsyncGenerator[_T, None]:
    """The values of a stream, skipping what only another version knows. The first is needed: a Snapshot."""
    if reply.status_code >= 400:
        await reply.aread()
        raise _refusal(reply)
    if is_too_old(reply.headers.get(HEADER, "")):
        raise _unreadable(reply)
    has_begun = False
    async for said in stream_of(reply):
        try:
            value = decode(said)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if not has_begun:
                raise _unreadable(reply) from error
        else:
            has_begun = True
            yield value


def _session(wanted: SessionName) -> str:
    if not wanted.name:
        raise errors.UsageError("The session needs a name.", "Use at most 32 letters, digits and signs.")
    return f"/v1/sessions/{_segment(wanted.name)}"


def _segment(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")


def _refusal(reply: httpx2.Response) -> errors.MaclusterError:
    """The problem in a reply. One without comes from another version, or from a defect of the node."""
    try:
        return errors.error_from(msgspec.json.decode(reply.content, type=errors.Problem))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        failed = errors.NodeError(f"macluster's service failed (HTTP {reply.status_code}).", "See its log.")
        return _other_version(reply) or failed


def _unreadable(reply: httpx2.Response) -> errors.NodeError:
    what = "macluster's service sent a reply that can't be read."
    return _other_version(reply) or errors.NodeError(what, "See its log.")


def _other_version(reply: httpx2.Response) -> errors.VersionsDiffer | None:
    said = difference(reply.headers.get(HEADER, ""), local_header())
    return errors.VersionsDiffer(said) if said else None
