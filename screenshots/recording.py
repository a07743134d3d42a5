"""Replies of a node to the UI, kept so that a picture can be drawn again, to the letter, without the node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from core.errors import NodeError
from core.events import AnyEvent
from core.requests.body import Body, Done
from core.requests.checks import Finding
from core.settings import Home
from tui.client import ANSWER_S, NodeClient
from tui.state.state import UiState

CHECK = "GET /v1/check"
RECORDINGS = Path(__file__).parent / "recordings"


class Recording(msgspec.Struct, frozen=True):
    """The state of the UI at `at`, seconds since the epoch, and the node's replies by request."""

    state: UiState
    at: float
    replies: dict[str, msgspec.Raw]


def asked(method: str, path: str, body: Body | None) -> str:
    """The request as the key of its reply, without the id and time in requests that write to disk."""
    if method == "PUT":
        path, body = path.rpartition("/")[0], None
    return " ".join([method, path, msgspec.json.encode(body).decode() if body is not None else ""]).strip()


class RecordingClient(NodeClient):
    """A client that keeps the node's replies."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.replies: dict[str, msgspec.Raw] = {}

    async def _call(
        self, method: str, path: str, body: Body | None, kind: type[Any], timeout_s: float | None = ANSWER_S
    ) -> Any:
        reply = await super()._call(method, path, body, kind, timeout_s)
        self.remember(method, path, body, reply)
        return reply

    def remember(self, method: str, path: str, body: Body | None, reply: object) -> None:
        self.replies[asked(method, path, body)] = msgspec.Raw(msgspec.json.encode(reply))

    async def check(self) -> AsyncIterator[Finding]:
        found: list[Finding] = []
        async for finding in super().check():
            found.append(finding)
            yield finding
        self.replies[CHECK] = msgspec.Raw(msgspec.json.encode(found))


class ReplayingClient(NodeClient):
    """Answers with the recorded replies, and sends no event. `missing` lists requests without a recorded reply."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(Home(Path("/Users/you/.macluster")))
        self._recording = recording
        self.missing: list[str] = []

    async def events(self) -> AsyncIterator[AnyEvent]:
        yield self._recording.state.snapshot
        await asyncio.Event().wait()

    async def check(self) -> AsyncIterator[Finding]:
        for finding in msgspec.json.decode(self._recording.replies[CHECK], type=list[Finding]):
            yield finding

    async def _call(
        self, method: str, path: str, body: Body | None, kind: type[Any], timeout_s: float | None = ANSWER_S
    ) -> Any:
        key = asked(method, path, body)
        if kind is Done:
            return Done()
        if key not in self._recording.replies:
            self.missing.append(key)
            raise NodeError(f"Nobody recorded {key}.")
        return msgspec.json.decode(self._recording.replies[key], type=kind)


def load(name: str) -> Recording:
    return msgspec.json.decode((RECORDINGS / f"{name}.json").read_bytes(), type=Recording)


def save(name: str, recording: Recording, hidden: dict[str, str]) -> None:
    """Write the recording, with the paths of this machine replaced as `hidden` says."""
    text = msgspec.json.format(msgspec.json.encode(recording), indent=1).decode()
    for path, shown in hidden.items():
        text = text.replace(path, shown)
    RECORDINGS.mkdir(exist_ok=True)
    (RECORDINGS / f"{name}.json").write_text(text)
