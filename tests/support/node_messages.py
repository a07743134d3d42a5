"""One control message of every kind, and how to decode it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from core.answer_parts import ReasoningPart, TextPart, ToolCall
from core.errors import LinkLost
from core.events import PromptLogprobs, RequestDone, TokenEvent, TokenLogprobs, Transfer
from core.node.base.message_table import MessageDecoder, MessageRow
from core.node.base.node_message import NodeMessage
from core.node.disks.messages import (
    BytesReady,
    BytesRequest,
    CopyChange,
    CopyProgress,
    FalseFile,
    HeldModel,
    Holds,
    HoldsRequest,
    PeerCopyRequest,
)
from core.node.peers.messages import (
    Bye,
    Greeting,
    Leads,
    LinkProbe,
    LogEntry,
    LogReply,
    LogRequest,
    NotKnown,
    PeerSpeedRequest,
    Ping,
    Probed,
    SpeedMoved,
    SpeedResultSent,
    SpeedStop,
    Status,
)
from core.node.peers.stage_state import HeldStage, PlanId, files_hash
from core.node.relay.messages import RelayReply, RelayRequest, RelayStop
from core.node.relay.relayed_values import (
    Accepted,
    AnswerWanted,
    CountWanted,
    NotAnswered,
    Relayed,
    TextWanted,
    Wanted,
    encoded,
)
from core.node.ring.messages import (
    ClockReply,
    ClockRequest,
    FilesReply,
    FilesRequest,
    LinkUp,
    PeerTraceRequest,
    PrepareStage,
    Release,
    StageReport,
    TraceReply,
)
from core.node.trust.messages import KeyChange, KeyRefused
from core.requests.answers import ChatRequest, Message
from core.requests.checks import PathFigures, SpeedResult
from core.requests.trace import PhaseTurn
from core.sampling_options import Sampling
from tests.support.plans import FILES, held, mac_id, plan_of

PROBLEM = LinkLost("The cable is out.", "Plug it in.").problem
STAGE = HeldStage(
    plan=PlanId(mac_id(0), 7),
    link_gen=100,
    phase="linked",
    port=4718,
    done_bytes=1,
    total_bytes=2,
    loaded=held(1),
    files=files_hash(FILES),
    path="Thunderbolt",
)
LOST = HeldStage(plan=PlanId(mac_id(0), 7), phase="lost", problem=PROBLEM)
STATUS = Status(
    name="studio",
    chip="M2 Ultra",
    memory_bytes=64_000_000_000,
    budget_bytes=54_000_000_000,
    used_bytes=1,
    worker_pid=None,
    worker_rss_bytes=0,
    spare_rss_bytes=0,
    has_model=True,
    step=2**40,
    leads=Leads(model="toy", rows=8, takes_relayed=True),
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
    paths=(PathFigures(kind="Thunderbolt", rtt_s=0.001, bytes_per_s=10**9), PathFigures(kind="", rtt_s=0.1)),
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
ASKED = ChatRequest(messages=(Message(role="user", content="hello"),), sampling=Sampling(logit_bias={7: -1.0}))
RELAYED: list[Wanted | Relayed] = [
    AnswerWanted(request=ASKED),
    CountWanted(request=ASKED),
    TextWanted(tokens=(1, 2)),
    Accepted(prompt_tokens=3),
    PromptLogprobs(request_id="r", start=1, tokens=(TokenLogprobs(token=2, logprob=-0.5, top=((3, -0.25),)),)),
    TokenEvent(request_id="r", index=0, token=5, text="\x1b a", logprob=-0.5, top=((5, -0.5),)),
    TextPart("\x1b a"),
    ReasoningPart("hm"),
    ToolCall(id="a", name="f", arguments="{}"),
    RequestDone(request_id="r", finish_reason="stop", prompt_tokens=3, tokens=1, ttft_s=0.5, decode_tokens_per_s=9.0),
    None,
    3,
    "a",
    NotAnswered(problem=PROBLEM),
]
EVERY: list[NodeMessage] = [
    Greeting(version="0.1.0", wire=(1, 2), compute="c" * 16, mlx="0.32.4", caps=("far",), installed_by="uv"),
    NotKnown(frame=22, what="Version 0.1.0 of macluster has no such message."),
    Ping(
        sent=12.5, answers=12.0, held_s=0.25, rests=True, logged=7, status=STATUS, stage=STAGE, rtts={mac_id(1): 0.001}
    ),
    PrepareStage.of(plan_of(3), 2),
    StageReport(stage=STAGE),
    StageReport(stage=LOST),
    FilesRequest(plan=PlanId(mac_id(0), 7)),
    FilesReply(plan=PlanId(mac_id(0), 7), files=FILES),
    LinkUp.of(plan_of(2), 4718),
    Release(plan_gen=100, reason="The person unloaded it."),
    KeyChange(request=(b"\x00" * 300, b"\xff")),
    KeyRefused(problem=PROBLEM),
    LinkProbe(number=7, size=0),
    LinkProbe(number=(1 << 32) - 1, size=64),
    Probed(number=7),
    PeerSpeedRequest(test=1, target=mac_id(1)),
    SpeedMoved(test=1, done=3),
    SpeedResultSent(test=1, problem=PROBLEM),
    SpeedResultSent(test=1, result=FOUND),
    SpeedStop(test=1),
    Holds(models=(HELD,), broken=("half",)),
    HoldsRequest(),
    BytesRequest(number=7, fingerprint="a" * 64),
    BytesReady(number=7, port=50_000),
    BytesReady(number=7, problem=PROBLEM),
    PeerCopyRequest(fingerprint="a" * 64),
    CopyChange(fingerprint="a" * 64, what="limit", bytes_per_s=1 << 20),
    PeerCopyRequest(fingerprint="a" * 64, parts={"model.safetensors": ((0, 1 << 40),)}, bytes_per_s=1 << 20),
    FalseFile(fingerprint="a" * 64, name="model.safetensors"),
    CopyProgress(transfer=Transfer(model="toy", mac=mac_id(1), state="failed", problem=PROBLEM)),
    RelayRequest(number=7, data=encoded(AnswerWanted(request=ASKED)), is_last=True),
    RelayReply(number=7, data=b"\x00\xff", is_last=False),
    RelayStop(number=7),
    ClockRequest(number=7),
    ClockReply(number=7, at_s=1.5),
    PeerTraceRequest(number=7, is_on=True),
    TraceReply(number=7, turns=(PhaseTurn(1, "chunk", 0.5, 0.75, ((12, 0.25), (0, 0.5))),)),
    LogRequest(run=1 << 47, after=7),
    LogReply(run=1 << 47, last=9, now=1.5, lines=(LogEntry(at=1.25, level="WARN", text="mini is gone."),)),
    Bye(reason="Its node was ended."),
]

KINDS = tuple(dict.fromkeys(type(message) for message in EVERY))
FRAMES = {kind: kind.FRAME for kind in KINDS}
from_frame = MessageDecoder(*KINDS).decode


def other_messages(handle: Callable[[str, NodeMessage], Awaitable[None]]) -> list[MessageRow]:
    """Rows for all messages that a mesh passes on."""
    return [MessageRow(kind, handle) for kind in KINDS if kind not in (Greeting, NotKnown, Ping, Bye)]
