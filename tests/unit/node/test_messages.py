from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
from core.errors import ProtocolError
from core.events import AnyEvent
from core.link.frames import FrameType
from core.node.base.journal import LINE_LIMIT
from core.node.base.node_message import NodeMessage, to_frame
from core.node.config import NodeConfig
from core.node.parts import NodeParts
from core.node.peers.messages import MAX_LOG_LINES, LogEntry, LogReply
from core.node.peers.stage_state import PlanId
from core.node.relay.relayed_values import Relayed, Wanted
from core.node.ring.messages import FilesReply, PrepareStage
from core.numbers import MOST
from core.settings import GB, MAX_CONTROL_BODY, Home
from core.worker.messages import Command, Report
from core.worker.work_frames import Order
from tests.support.node_messages import EVERY, FRAMES, KINDS, from_frame
from tests.support.plans import mac_id, plan_of


@pytest.mark.parametrize("message", EVERY, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_and_only_in_its_own_frame(message: NodeMessage) -> None:
    kind, body = to_frame(message)
    assert from_frame(kind, body) == message
    for other in set(FrameType) - {kind}:
        with pytest.raises(ProtocolError):
            from_frame(other, body)


def test_every_kind_of_message_is_tried_here() -> None:
    assert set(KINDS) == {kind for kind in _subclasses(NodeMessage) if not _subclasses(kind)}


async def test_a_node_accepts_every_kind_of_message_and_no_other(tmp_path: Path) -> None:
    config = NodeConfig(home=Home(tmp_path / "home"), name="mac", host="127.0.0.1", port=0, budget_bytes=GB)
    assert NodeParts(config, asyncio.Event()).node.messages.kinds == set(KINDS)


def _subclasses(kind: type[NodeMessage]) -> set[type[NodeMessage]]:
    return {each for sub in kind.__subclasses__() for each in (sub, *_subclasses(sub))}


def test_no_name_of_a_class_travels() -> None:
    """A refactor that renames a class must not change the protocol: each tag is written out where it is used."""
    for union in (Command, Report, AnyEvent, Relayed, Wanted, Order):
        tags = [kind.__struct_config__.tag for kind in get_args(union) if hasattr(kind, "__struct_config__")]
        assert all(tags), union
    sources = Path(core.__file__).parent.rglob("*.py")
    assert [str(file) for file in sources if "tag=True" in file.read_text()] == []


def test_the_largest_plan_fits_a_control_frame() -> None:
    plan = plan_of(8)
    stages = tuple(msgspec.structs.replace(s, peer="\U0001f5a5" * 32) for s in plan.stages * 8)
    _, body = to_frame(PrepareStage.of(msgspec.structs.replace(plan, stages=stages), 63))
    assert len(body) <= MAX_CONTROL_BODY


def test_the_checksums_of_five_hundred_files_fit_a_control_frame() -> None:
    files = {f"model-{n:05}-of-00500.safetensors": "a" * 64 for n in range(500)}
    reply = FilesReply(plan=PlanId(mac_id(0), 2**32 - 1), files=files)
    frame = to_frame(reply)
    assert len(frame[1]) <= MAX_CONTROL_BODY
    assert from_frame(*frame) == reply


def test_as_many_lines_of_a_log_as_are_asked_for_fit_a_control_frame() -> None:
    for text in ("\U0001f5a5" * LINE_LIMIT, '"' * LINE_LIMIT):
        lines = (LogEntry(at=1.7e9 + 1 / 3, level="ERROR", text=text),) * MAX_LOG_LINES
        _, body = to_frame(LogReply(run=MOST, last=MOST, now=1.7e9 + 1 / 3, lines=lines))
        assert len(body) <= MAX_CONTROL_BODY


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b'"Bye"',
    b'{"type":"Bye"}',
    b'{"type":"Hello","reason":"x"}',
    b'{"type":"Bye","reason":7}',
    b'{"type":"Ping","sent":1e400}',
    b'{"type":"Ping","sent":NaN}',
    b"[" * 60_000,
    b'{"type":"Bye","x":' + b"[" * 30_000 + b"]" * 30_000 + b',"reason":"x"}',
    b'{"a":' * 12_000,
    b'{"type":"Bye","reason":"\\ud800"}',
    b'{"type":"Bye","reason":"\xff"}',
]


def leaves(value: Any) -> Iterator[Any]:
    """Every text and number in plain JSON values, keys as well."""
    match value:
        case dict():
            for key, inner in value.items():
                yield from (key, *leaves(inner))
        case list() | tuple():
            for inner in value:
                yield from leaves(inner)
        case _:
            yield value


def bent(message: NodeMessage, spot: str, put: str) -> Iterator[NodeMessage]:
    """Decode the message with `put` at each place in its JSON that matches `spot`."""
    kind, body = to_frame(message)
    if kind in (FrameType.PROBE, FrameType.RELAY_ASK, FrameType.RELAY_REPLY):  # these are not JSON
        return
    text = body.decode()
    for at, end in (found.span(1) for found in re.finditer(spot, text)):
        with suppress(ProtocolError):
            yield from_frame(kind, (text[:at] + put + text[end:]).encode())


@pytest.mark.parametrize("message", EVERY, ids=lambda m: type(m).__name__)
@pytest.mark.promise("T13")
def test_no_text_of_another_mac_has_an_end_of_a_line_but_newline(message: NodeMessage) -> None:
    for came in bent(message, r'"()', r"a\u2028b\u2029\u0085\u000b\u000c\u001c\u001d\u001e\r"):
        for text in leaves(msgspec.to_builtins(came)):
            assert not isinstance(text, str) or len(text.splitlines()) <= text.count("\n") + 1


@pytest.mark.parametrize("body", HOSTILE, ids=lambda b: b[:20].decode("ascii", "replace"))
@pytest.mark.parametrize("kind", [FrameType.PING, FrameType.PLAN, FrameType.BYE])
def test_junk_is_a_protocol_error(kind: FrameType, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        from_frame(kind, body)


@given(
    st.sampled_from(EVERY),
    st.sampled_from(sorted(set(FRAMES.values()))),
    st.integers(0, 10**6),
    st.one_of(st.binary(max_size=3), st.text("\x00\"'{}[],:-9eE.", max_size=6).map(str.encode)),
)
def test_a_damaged_message_decodes_or_is_a_protocol_error(
    message: NodeMessage, kind: FrameType, at: int, piece: bytes
) -> None:
    _, body = to_frame(message)
    at %= len(body)
    try:
        from_frame(kind, body[:at] + piece + body[at + 1 :])
    except ProtocolError:
        return


NUMBERS = ["1.7e308", "-1.7e308", "1" + "0" * 400, "-1" + "0" * 400, "9" * 19, "1" * 5000]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: n[:8])
@pytest.mark.parametrize("message", EVERY, ids=lambda m: type(m).__name__)
def test_no_number_of_another_mac_is_beyond_what_can_be_counted_with(message: NodeMessage, number: str) -> None:
    for came in bent(message, r"(?<=[:,\[])(-?\d[\d.e-]*)(?=[,}\]])", number):
        assert all(abs(n) < 1 << 53 for n in leaves(msgspec.to_builtins(came)) if isinstance(n, int | float))
