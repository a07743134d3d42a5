from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import LinkLost, ProtocolError
from core.events import Transfer
from core.link.frames import FrameType
from core.node.base.messages import (
    FRAMES,
    AnyMessage,
    Bye,
    Checked,
    CopyAsk,
    CopyProgress,
    FileFacts,
    FilesAsk,
    FilesSent,
    HeldModel,
    Holds,
    HoldsAsk,
    KeyChange,
    KeyRefused,
    LinkProbe,
    LinkUp,
    PartAsk,
    PartSent,
    Ping,
    Pong,
    Prepared,
    PrepareStage,
    Probed,
    Release,
    Reported,
    SpeedAsk,
    SpeedMoved,
    SpeedResultSent,
    SpeedStop,
    StageLost,
    Status,
    from_frame,
    to_frame,
)
from core.requests import SpeedResult
from core.settings import MAX_CONTROL_BODY
from core.worker.messages import Failed, LinkBroken, Linked, Loading
from tests.unit.node.test_plan_lifecycle import FILES, held, mac_id, plan_of

PROBLEM = LinkLost("The cable is out.", "Plug it in.").problem
STATUS = Status(
    name="studio",
    chip="M2 Ultra",
    memory_bytes=64_000_000_000,
    budget_bytes=54_000_000_000,
    used_bytes=1,
    worker_pid=None,
    worker_rss_bytes=0,
    rtts={mac_id(1): 0.001},
    has_model=True,
    step=2**40,
)
FOUND = SpeedResult(
    source=mac_id(1),
    target=mac_id(2),
    rtt_s=0.002,
    rtt_min_s=0.001,
    round_trips=20,
    loaded_rtt_s=0.01,
    frames=2,
    bytes=98304,
    seconds=1.0,
)
HELD = HeldModel(
    name="toy",
    fingerprint="a" * 64,
    model_type="llama",
    layers=2,
    total_bytes=1,
    quantization="4-bit",
    context_max=4096,
)
EVERY: list[AnyMessage] = [
    Ping(sent=12.5),
    Pong(sent=12.5, status=STATUS),
    PrepareStage(plan=plan_of(3), index=2),
    Prepared(plan_gen=100, port=4718),
    Checked(plan_gen=100, files=FILES),
    LinkUp(plan=plan_of(2), port=4718),
    Reported(plan_gen=100, report=Loading(done_bytes=1, total_bytes=2)),
    Reported(plan_gen=100, report=held(1)),
    Reported(plan_gen=100, report=Failed(plan_gen=100, problem=PROBLEM)),
    Reported(plan_gen=100, report=Linked(plan_gen=100)),
    Reported(plan_gen=100, report=LinkBroken(plan_gen=100, problem=PROBLEM)),
    StageLost(plan_gen=100, problem=PROBLEM),
    Release(plan_gen=100, reason="The person unloaded it."),
    KeyChange(request=(b"\x00" * 300, b"\xff")),
    KeyRefused(problem=PROBLEM),
    LinkProbe(number=7, size=0),
    LinkProbe(number=(1 << 32) - 1, size=64),
    Probed(number=7),
    SpeedAsk(test=1, target=mac_id(1)),
    SpeedMoved(test=1, done=3),
    SpeedResultSent(test=1, problem=PROBLEM),
    SpeedResultSent(test=1, result=FOUND),
    SpeedStop(test=1),
    Holds(models=(HELD,), broken=("half",)),
    HoldsAsk(),
    FilesAsk(fingerprint="a" * 64),
    FilesSent(fingerprint="a" * 64, files={"config.json": FileFacts(size=7, sha256="b" * 64)}),
    FilesSent(fingerprint="a" * 64, problem=PROBLEM),
    PartAsk(number=7, fingerprint="a" * 64, name="config.json", offset=1 << 40),
    PartSent(number=7, data=b""),
    PartSent(number=(1 << 53) - 1, data=b"\x00\xff" * 24),
    CopyAsk(fingerprint="a" * 64, go_on=False),
    CopyProgress(transfer=Transfer(model="toy", mac=mac_id(1), state="failed", problem=PROBLEM)),
    Bye(reason="Its node was ended."),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_and_only_in_its_own_frame(message: AnyMessage) -> None:
    kind, body = to_frame(message)
    assert from_frame(kind, body) == message
    for other in set(FrameType) - {kind}:
        with pytest.raises(ProtocolError):
            from_frame(other, body)


def test_every_kind_of_message_is_tried_here() -> None:
    assert {type(m) for m in EVERY} == set(FRAMES)


def test_the_largest_plan_fits_a_control_frame() -> None:
    plan = plan_of(8)
    stages = tuple(msgspec.structs.replace(s, peer="\U0001f5a5" * 32) for s in plan.stages * 8)
    _, body = to_frame(PrepareStage(plan=msgspec.structs.replace(plan, stages=stages), index=63))
    assert len(body) <= MAX_CONTROL_BODY


def test_the_checksums_of_five_hundred_files_fit_a_control_frame() -> None:
    files = {f"model-{n:05}-of-00500.safetensors": "a" * 64 for n in range(500)}
    frame = to_frame(Checked(plan_gen=100, files=files))
    assert len(frame[1]) <= MAX_CONTROL_BODY
    assert from_frame(*frame) == Checked(plan_gen=100, files=files)


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
    message: AnyMessage, kind: FrameType, at: int, piece: bytes
) -> None:
    _, body = to_frame(message)
    at %= len(body)
    try:
        from_frame(kind, body[:at] + piece + body[at + 1 :])
    except ProtocolError:
        return
