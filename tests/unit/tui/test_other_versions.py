"""A command next to a node of another version: unknown things are skipped, and a failure is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

import core.version
from core.errors import NodeError, NodeUnreachable, VersionsDiffer
from core.events import Snapshot, TokenEvent, encode_event
from core.requests.answers import ChatRequest, Message
from core.requests.body import without_defaults
from core.requests.plans import LoadRequest
from core.requests.restart import RestartOrder, RestartReport
from core.requests.trust import TrustView
from core.sampling_options import Sampling
from core.settings import Home
from core.version import HEADER, RELEASE, program_version
from tests.support.app import StillNode, text_of
from tests.support.waiting import until
from tui.app import MaclusterApp
from tui.cli.restart import restart_lines
from tui.cli.status import status_lines
from tui.client import NodeClient
from tui.control.node_restart import effect
from tui.own_node import OwnNode
from tui.state.disabled_reasons import NO_NODE, why_not
from tui.state.state import UiState
from tui.widgets.banner import outdated, startable

NEWER, OLDER, HERE = "9.9.9", "0.0.1", program_version()
THEIRS = f"This is {HERE}: the node belongs to another installation of macluster."
TRUST = msgspec.to_builtins(TrustView(level="paired", key_storage="file"))


def client_of(status: int, body: bytes, version: str) -> NodeClient:
    """A client of a node that gives this reply to everything."""

    def reply(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=body, headers={HEADER: f"{version}; local=1"})

    client = NodeClient(Home(Path("/nonexistent")))
    client.__dict__["_http"] = httpx2.AsyncClient(transport=httpx2.MockTransport(reply), base_url="http://node")
    return client


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"404: Not Found"), (405, b""), (200, b'{"level": "new"}'), (200, b"[1"), (200, b"\xff")]
)
@pytest.mark.parametrize(("version", "cure"), [(OLDER, "`macluster restart`"), (NEWER, "start the newer macluster")])
async def test_a_reply_of_another_version_is_one_sentence(status: int, body: bytes, version: str, cure: str) -> None:
    async with client_of(status, body, version) as client:
        with pytest.raises(NodeError) as said:
            await client.trust()
        assert str(said.value) == f"The node runs {version}, this is {program_version()}: {cure}."


@pytest.mark.parametrize("status", [200, 404])
async def test_the_same_fault_of_a_node_of_this_version_is_its_defect(status: int) -> None:
    async with client_of(status, b"?", program_version()) as client:
        with pytest.raises(NodeError, match=r"See its log\."):
            await client.trust()


async def test_replies_that_this_version_would_misunderstand_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    said, report = f"The node runs {OLDER}, this is .*: `macluster restart`", RestartReport(version=OLDER, started_at=1)
    async with client_of(200, msgspec.json.encode(TRUST), OLDER) as client:
        await client.trust()
        monkeypatch.setattr(core.version, "LOCAL", (2, 2))
        with pytest.raises(VersionsDiffer, match=said):
            await client.trust()
        with pytest.raises(VersionsDiffer, match=said):
            await anext(client.events())
    async with client_of(200, msgspec.json.encode(report), OLDER) as client:
        assert await client.restart(RestartOrder()) == report


async def test_unknown_fields_of_a_reply_are_ignored() -> None:
    body = msgspec.json.encode({**TRUST, "new": [1], "macs": [{"new": 1, **_mac()}]})
    async with client_of(200, body, NEWER) as client:
        view = await client.trust()
    assert (view.key_storage, view.macs[0].name) == ("file", "mini")


def _mac() -> dict[str, str]:
    return {"device_id": "a", "name": "mini", "level": "paired", "role": "member"}


def stream(*events: bytes) -> bytes:
    return b"".join(b"data: " + event + b"\n\n" for event in events)


async def test_unknown_events_are_skipped_and_the_answer_goes_on() -> None:
    token = TokenEvent(request_id="r", index=0, token=1, text="a")
    odd = (b'{"type": "Invented", "x": 1}', b'{"type": "StageState", "device_id": "a", "status": "invented"}')
    more = encode_event(token).replace(b"{", b'{"new": 1, ', 1)
    body = stream(encode_event(Snapshot()), *odd, more)
    async with client_of(200, body, NEWER) as client:
        assert [event async for event in client.events()] == [Snapshot(), token]


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"404: Not Found"), (200, stream(b'{"type": "Snapshot", "plan_status": "new"}'))]
)
async def test_a_state_that_cannot_be_read_names_both_versions(status: int, body: bytes) -> None:
    async with client_of(status, body, OLDER) as client:
        with pytest.raises(NodeError, match=f"The node runs {OLDER}, this is .*: `macluster restart`"):
            await anext(client.events())


def test_a_request_says_only_what_is_not_as_always() -> None:
    asked = ChatRequest(messages=(Message(role="user", content="hi"),), sampling=Sampling(top_k=3, logit_bias={7: 1}))
    assert without_defaults(asked) == {
        "messages": [{"role": "user", "content": "hi"}],
        "sampling": {"top_k": 3, "logit_bias": {7: 1}},
    }
    for request in (asked, LoadRequest(model="m"), LoadRequest(model="m", kv_bits=4, without=("a",), verify=True)):
        said = msgspec.json.encode(without_defaults(request))
        assert msgspec.json.decode(said, type=type(request)) == request


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (Snapshot(), None),
        (Snapshot(version=HERE), None),
        (Snapshot(version=f"{RELEASE}+another"), None),
        (Snapshot(version=OLDER), f"The node runs {OLDER}, this is {HERE}: `macluster restart`."),
        (Snapshot(version=HERE, outdated="macluster was removed."), "macluster was removed."),
    ],
)
def test_the_screen_and_status_tell_other_versions(now: Snapshot, said: str | None) -> None:
    problem = outdated(now)
    assert (problem and problem.what) == said
    assert problem is None or problem.fix.startswith("R restarts ")
    assert [line for line in status_lines(now) if line == said] == ([said] if said else [])


@pytest.mark.parametrize(
    ("state", "starts_node", "why"),
    [
        (UiState(attached=True), True, ""),
        (UiState(offline=VersionsDiffer("The node runs 0.0.1.").problem), True, ""),
        (UiState(offline=NodeUnreachable("No node answers.").problem), True, NO_NODE),
        (UiState(attached=True), False, "The demo starts its Macs itself."),
    ],
)
def test_a_node_that_runs_can_be_restarted_whatever_its_version(state: UiState, starts_node: bool, why: str) -> None:
    assert why_not(state, "restart_node", starts_node=starts_node) == why
    shown = startable(state.offline)
    assert shown is None or ("R restarts" in shown.fix) == (not why)


REPORT = RestartReport(version=OLDER, started_at=1.0)


@pytest.mark.parametrize(
    ("change", "effects", "lines"),
    [
        ({}, "", ["The node was restarted and runs 9.9.9.", THEIRS]),
        ({"version": HERE}, "", [f"The node was restarted and runs {HERE}."]),
        (
            {"version": HERE, "model": "m", "is_answering": True},
            "It restarts when the answer has ended. m is unloaded; load it again afterwards (Ctrl+O).",
            [f"The node was restarted and runs {HERE}.", "`macluster load m` loads the model again."],
        ),
        (
            {"version": HERE, "model": "m", "led_by": "mini"},
            "m, which mini loaded, stops on all its Macs.",
            [f"The node was restarted and runs {HERE}."],
        ),
    ],
)
def test_a_restart_says_what_ends_with_the_node(change: dict[str, Any], effects: str, lines: list[str]) -> None:
    report = msgspec.structs.replace(REPORT, **{"version": NEWER, **change})
    assert (effect(report), restart_lines(report, report)) == (effects, lines)


class Restartable(StillNode):
    """A node of another version with a model loaded; notes that it was restarted."""

    restarted = 0

    async def restart(self, _: RestartOrder) -> RestartReport:
        return msgspec.structs.replace(REPORT, model="llama")

    async def restart_when_quiet(self) -> None:
        self.restarted += 1


async def test_a_key_restarts_the_node_after_asking(tmp_path: Path) -> None:
    client: Any = Restartable(Snapshot(version=OLDER))
    app = MaclusterApp(client, folder=tmp_path, node=OwnNode(Home(tmp_path)))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: f"The node runs {OLDER}" in text_of(app))
        for answer, restarted in ((("enter",), 0), (("down", "enter"), 1)):
            await pilot.press("R")
            await until(lambda: "llama is unloaded" in text_of(app))
            await pilot.press(*answer)
            await until(lambda: "llama is unloaded" not in text_of(app))
            await pilot.pause()
            assert client.restarted == restarted
