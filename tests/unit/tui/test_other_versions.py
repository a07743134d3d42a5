"""A command next to a node of another version: unknown things are skipped, and a failure is one sentence."""

from __future__ import annotations

from pathlib import Path

import httpx2
import msgspec
import pytest

from core.errors import NodeError
from core.events import Snapshot, TokenEvent, encode_event
from core.requests.answers import ChatRequest, Message
from core.requests.body import without_defaults
from core.requests.plans import LoadRequest
from core.requests.trust import TrustView
from core.sampling_options import Sampling
from core.settings import Home
from core.version import HEADER, program_version
from tui.client import NodeClient

NEWER, OLDER = "9.9.9", "0.0.1"
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
