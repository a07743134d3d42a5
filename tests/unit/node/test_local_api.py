"""The table of endpoints: arguments come in the path and in the body; a defect shows its place and no value."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import MagicMock

import msgspec
import pytest

import core.version
from core.errors import NodeError, Problem, UsageError
from core.events import Snapshot, TokenEvent
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.local_server import LocalServer
from core.node.disks.conversations import Conversations
from core.requests.answers import AnswerId
from core.requests.body import Done
from core.requests.checks import Finding
from core.requests.conversations import (
    ChatOptions,
    Conversation,
    ConversationId,
    SavedSession,
    SessionName,
)
from core.sampling_options import Sampling
from core.settings import Home
from core.version import HEADER, program_version
from tests.support.contexts import context_of
from tests.support.rooms import routes_of
from tui.client import NodeClient

TYPED: Final = "what a person typed"
ID: Final = "0123456789abcdef" * 2


@asynccontextmanager
async def serving(folder: Path, **parts: Any) -> AsyncIterator[tuple[NodeClient, Bus]]:
    """An API with those parts, and a client of it."""
    home, bus = Home(folder), Bus()
    node = context_of(bus=bus, journal=Journal(folder / "log", "mac", bus))
    api = LocalServer(routes_of(node, **parts), bus, node.tasks)
    await api.start(home.socket)
    try:
        async with NodeClient(home) as client:
            yield client, bus
    finally:
        await api.stop()


class Sessions:
    """Records the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __getattr__(self, command: str) -> Any:
        async def note(wanted: SessionName) -> SavedSession | Done:
            self.asked.append((command, wanted.name))
            return Done() if command == "delete" else SavedSession(name=wanted.name)

        return note


@pytest.mark.parametrize("name", ["trip", "stop", "a b", "été", "a/b", "../a", "..", ".", "a%2Fb", "?", "#", "{name}"])
async def test_the_name_of_a_session_reaches_its_command_whole(tmp_path: Path, name: str) -> None:
    sessions, wanted = Sessions(), SessionName(name=name)
    async with serving(tmp_path, sessions=sessions) as (client, _):
        assert (await client.session(wanted)).name == name
        await client.save_session(wanted)
        await client.load_session(wanted)
        await client.delete_session(wanted)
    assert sessions.asked == [(command, name) for command in ("show", "save", "load", "delete")]


async def test_a_session_without_a_name_or_with_too_long_a_one_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, _):
        for name, told in (("", "The session needs a name."), ("x" * 129, "Name must be ")):
            with pytest.raises(UsageError) as refused:
                await client.session(SessionName(name=name))
            assert refused.value.what.startswith(told)


async def test_a_conversation_is_kept_read_renamed_and_deleted_at_one_path(tmp_path: Path) -> None:
    options = ChatOptions(sampling=Sampling(logit_bias={7: -1.5}, temperature=1), stop=("x",))
    said = Conversation(id=ID, title="A trip", created_at=1, changed_at=2, options=options)
    async with serving(tmp_path, conversations=Conversations(tmp_path / "kept", b"s" * 32)) as (client, _):
        await client.keep_conversation(said)
        assert await client.conversation(ConversationId(id=ID)) == said
        await client.keep_conversation(msgspec.structs.replace(said, title="Home"))
        assert [each.title for each in await client.conversations()] == ["Home"]
        with pytest.raises(UsageError):
            await client.keep_conversation(msgspec.structs.replace(said, keep=3))
        await client.delete_conversation(ConversationId(id=ID))
        assert await client.conversations() == []
        with pytest.raises(UsageError):
            await client._call("GET", "/v1/conversations/..%2F..%2Fidentity", None, Conversation)


ENDS: Final = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e \r \n "  # all line ends of str.splitlines


async def test_events_end_at_a_newline_only_whatever_a_model_writes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, bus):
        events = client.events()
        assert isinstance(await anext(events), Snapshot)
        said = [TokenEvent(request_id="r", index=index, token=1, text=f"{ENDS}data: {index}") for index in range(100)]
        for token in said:
            bus.publish(token)
        assert [await anext(events) for _ in said] == said


async def test_findings_end_at_a_newline_only(tmp_path: Path) -> None:
    found = Finding(name="name", state="ok", what=ENDS)

    async def findings() -> AsyncIterator[Finding]:
        yield found

    async with serving(tmp_path, check=MagicMock(findings=findings)) as (client, _):
        assert [each async for each in client.check()] == [found]


NUL, LONG = "a\0b", "x" * 5000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/v1/plan", f'{{"model": {json.dumps(name)}}}') for name in (NUL, LONG, f"./{NUL}", f"/{LONG}")),
        *(("/v1/trust/revoke", f'{{"mac": {json.dumps(name)}}}') for name in (NUL, LONG)),
        *(("/v1/speedtest", f'{{"target": {json.dumps(name)}}}') for name in (NUL, LONG)),
        *(("/v1/pairing/offer", f'{{"host": {json.dumps(name)}, "port": 1}}') for name in (NUL, LONG)),
        *(("/v1/plan", f'{{"model": "m", "context": {n}}}') for n in (1 << 64, 10**400, "1" * 5000, -(1 << 64))),
        *(
            ("/v1/chat", f'{{"messages": [{{"role": "user", "content": "hi"}}], "{field}": {value}}}')
            for field, value in (
                ("max_tokens", 1 << 64),
                ("sampling", f'{{"seed": {1 << 64}}}'),
                ("sampling", f'{{"top_k": {1 << 64}}}'),
                ("sampling", f'{{"logit_bias": {{"{1 << 64}": 1}}}}'),
                ("sampling", f'{{"logit_bias": {{"{"9" * 5000}": 1}}}}'),
            )
        ),
        ("/v1/plan", "[" * 100_000),
        ("/v1/plan", '{"model": ' * 100_000),
        (f"/v1/conversations/{ID}", '{"title": ' + "[" * 100_000),
        ("/v1/sessions/a%00b/load", ""),
        (f"/v1/sessions/{'x' * 2000}/load", ""),
        (f"/v1/chat/{'x' * 2000}/stop", ""),
    ],
    ids=lambda value: value[:48],
)
async def test_names_and_numbers_beyond_all_limits_are_wrong_use(tmp_path: Path, path: str, body: str) -> None:
    async with serving(tmp_path) as (client, bus):
        method = "PUT" if "conversations" in path else "POST"
        reply = await client._http.request(method, path, content=body.encode())
        assert (reply.status_code, msgspec.json.decode(reply.content)["kind"]) == (400, "UsageError")
        assert bus.now.logs == ()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/plan", {"model": "m", "new": 1}),
        ("/v1/chat", {"messages": [{"role": "user", "content": "hi", "new": 1}]}),
        ("/v1/chat", {"messages": [{"role": "user", "content": "hi"}], "sampling": {"new": 1}}),
        ("/v1/transfers/stop", {"new": 1}),
    ],
)
async def test_a_field_that_only_another_version_knows_is_refused_with_both(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    async with serving(tmp_path) as (client, _):
        for theirs in ("9.9.9", program_version()):
            reply = await client._http.post(path, json=body, headers={HEADER: theirs})
            said = msgspec.json.decode(reply.content, type=Problem)
            versions = f"The node runs {program_version()}, this is 9.9.9: `macluster restart`."
            assert (reply.status_code, said.what) == (400, "New is not supported.")
            assert said.fix == (versions if theirs == "9.9.9" else "")


async def test_every_reply_names_the_version(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, _):
        for path in ("/v1/nothing", "/v1/sessions/x"):
            assert (await client._http.get(path)).headers[HEADER] == f"{program_version()}; local=1"


async def test_a_command_that_would_misunderstand_this_node_is_refused_but_may_restart_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.version, "LOCAL", (2, 3))
    async with serving(tmp_path) as (client, _):
        for said, is_refused in (("0.0.1; local=1", True), ("0.0.1; local=2", False), ("0.0.1", False), ("", False)):
            for path in ("/v1/nothing", "/v1/restart"):
                reply = await client._http.get(path, headers={HEADER: said})
                assert reply.headers[HEADER] == f"{program_version()}; local=3"
                if is_refused and path != "/v1/restart":
                    what = f"The node runs {program_version()}, this is 0.0.1: start the newer macluster."
                    assert msgspec.json.decode(reply.content, type=Problem).what == what
                else:
                    assert reply.status_code in (404, 405), "its path or method decides"


async def test_a_body_that_is_no_utf_8_is_wrong_use(tmp_path: Path) -> None:
    async with serving(tmp_path) as (client, _):
        for body in (b'{"model": "\xff"}', b'{"model": "\\ud800"}', b"\xff"):
            assert (await client._http.post("/v1/plan", content=body)).status_code == 400


async def test_the_path_has_the_last_word_about_what_is_asked(tmp_path: Path) -> None:
    chat = MagicMock()
    chat.cancel.return_value = None
    async with serving(tmp_path, chat=chat) as (client, _):
        await client._call("POST", "/v1/chat/this/stop", AnswerId(request_id="that"), Done)
    chat.cancel.assert_called_once_with("this")


async def test_a_command_that_fails_by_a_defect_is_logged_with_its_place_only(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trust = MagicMock()
    trust.view.side_effect = KeyError(TYPED)
    async with serving(tmp_path, commands=trust) as (client, bus):
        with pytest.raises(NodeError, match="HTTP 500"):
            await client.trust()
    (line,) = bus.now.logs
    assert line.text.startswith("A command failed by a defect: KeyError at core/node/base/local_server.py:")
    assert TYPED not in line.text
    assert TYPED not in "".join(capfd.readouterr())
