from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from core.engine.requests import Request
from core.errors import LinkLost
from core.events import Batch, BatchLane, BatchRow, PromptLogprobs, TokenLogprobs
from core.link.network_paths import NetworkPath
from core.pipe_messages import LENGTH, pack
from core.requests.answers import Message
from core.requests.trace import PhaseTurn
from core.sampling_options import Sampling
from core.worker.messages import (
    AnswerDone,
    Cancel,
    Command,
    Connect,
    ConnectPrefill,
    Departed,
    Failed,
    GpuFailed,
    GroupBroken,
    Join,
    LinkBroken,
    Linked,
    Listening,
    Load,
    Loading,
    LoadSession,
    Mirrored,
    MirrorSpan,
    MirrorSpans,
    PrefillBroken,
    Prefilled,
    PrefillLinked,
    Prove,
    Proved,
    Proving,
    ReadBeside,
    Report,
    Restored,
    Samples,
    SaveSession,
    SessionFailed,
    SessionLoaded,
    SessionSaved,
    StageSample,
    StopMirror,
    StopSession,
    Token,
    Trace,
    Traced,
    TracedPhases,
    TracePhases,
    TraceSpan,
    UnlinkPrefill,
    Unmirrored,
    Unproved,
    WantSpans,
    Worked,
    unpack_command,
    unpack_report,
)
from tests.support.plans import held, plan_of

PROBLEM = LinkLost("The cable is out.", "Plug it in.").problem
ID = "ab" * 16
CABLE = NetworkPath("169.254.1.2", "en2", "Thunderbolt", 40000)
EVERY_WISH = Sampling(
    temperature=0.5,
    top_p=0.9,
    top_k=40,
    min_p=0.05,
    repetition_penalty=1.1,
    repetition_context=64,
    presence_penalty=-2.0,
    presence_context=1,
    frequency_penalty=2.0,
    frequency_context=2**40,
    logit_bias={0: -100.0, 2**31: 1.5},
    seed=(1 << 63) - 1,
    logprobs=20,
)
SAID = (Message(role="user", content="ö"), Message(role="assistant", content=""))
COMMANDS: list[Command] = [
    Join(identity_folder="/somewhere", passphrase=b"\x00\xff", host="127.0.0.1"),
    Load(plan=plan_of(3), index=2, directory="/models/ö"),
    ConnectPrefill(plan=plan_of(2), digest=bytes(32), cluster=bytes(range(256)), ways=(CABLE,), next_port=7001),
    UnlinkPrefill(),
    Connect(
        plan=plan_of(2),
        digest=bytes(32),
        cluster=bytes(range(256)),
        ways=(NetworkPath("::1"), CABLE),
        next_port=65535,
    ),
    Prove(plan_gen=100),
    Request(request_id=ID, tokens=[0, 2**31], max_tokens=9, min_tokens=1, eos=[2], sampling=EVERY_WISH),
    Request(request_id=ID, tokens=[], max_tokens=1),
    Cancel(request_id=ID),
    SaveSession(path="/ö.mcs", secret=b"\x00", tokens=[2**31], messages=SAID, created_at=1.5),
    LoadSession(path="/ö.mcs", secret=b"\x00"),
    StopSession(),
    MirrorSpans(request_id=ID, behind=2**40, spans=(MirrorSpan(0, 2**40, b"\x00\xff"),)),
    StopMirror(request_id=ID),
    Trace(),
    TracePhases(is_on=True),
]
REPORTS: list[Report] = [
    Listening(pid=1, port=2, working_set_bytes=2**40),
    Loading(plan_gen=100, done_bytes=1, total_bytes=2**40),
    held(1, weight_bytes=2**40),
    Failed(plan_gen=100, problem=PROBLEM),
    Linked(plan_gen=100, way=CABLE),
    LinkBroken(plan_gen=100, problem=PROBLEM),
    PrefillLinked(plan_gen=100),
    PrefillBroken(plan_gen=100, problem=PROBLEM),
    ReadBeside(request_id=ID, tokens=9),
    Proving(),
    Proved(plan_gen=100, seconds=0.25, tokens=24, difference=None, why="there was never room"),
    Proved(plan_gen=100, seconds=0.25, tokens=24, difference=1e-6),
    Unproved(plan_gen=100, problem=PROBLEM),
    Prefilled(request_id=ID, done=1, total=2),
    PromptLogprobs(request_id=ID, start=1, tokens=(TokenLogprobs(token=7, logprob=-0.5, top=((7, -0.5),)),)),
    Token(request_id=ID, index=0, token=2**31),
    Token(request_id=ID, index=1, token=7, logprob=-0.5, top=((7, -0.5), (9, -1.25))),
    AnswerDone(request_id=ID, finish_reason="stop", prompt_tokens=1, tokens=2, ttft_s=None, problem=PROBLEM),
    SessionSaved(),
    SessionLoaded(),
    SessionFailed(problem=PROBLEM),
    Mirrored(request_id=ID, span=MirrorSpan(0, 2**40, b"\x00\xff")),
    WantSpans(request_id=ID, behind=2**40),
    Restored(request_id=ID, tokens=2**40),
    Unmirrored(request_id=ID),
    Samples(stages=[StageSample(index=0), StageSample(index=1, frames=3, wait_s=0.25)]),
    Traced(spans=[TraceSpan(step=1, handle=2, kind="chunk", start_s=0.5, end_s=0.75)]),
    Worked(step=2**40),
    Departed(request_id=ID, seal_s=1e-6, at=5.5),
    TracedPhases(turns=(PhaseTurn(1, "chunk", 0.5, 0.75, ((12, 0.25), (0, 0.5))),)),
    GroupBroken(problem=PROBLEM),
    GpuFailed(why="it ran out of memory", is_memory=True),
    Batch(rows=(BatchRow(request_id=ID, lane=1),), lanes=(BatchLane(rows=1, in_flight=True),)),
]


@pytest.mark.parametrize("message", [*COMMANDS, *REPORTS], ids=lambda m: type(m).__name__)
def test_a_message_comes_back_and_only_on_its_own_side(message: Command | Report) -> None:
    data = pack(message)
    (length,) = LENGTH.unpack(data[: LENGTH.size])
    body = data[LENGTH.size :]
    assert length == len(body)
    own, other = (unpack_command, unpack_report) if message in COMMANDS else (unpack_report, unpack_command)
    assert own(body) == message
    with pytest.raises(msgspec.ValidationError):
        other(body)


def test_every_kind_of_message_is_tried_here() -> None:
    assert {type(m) for m in COMMANDS} == set(get_args(Command))
    assert {type(m) for m in REPORTS} == set(get_args(Report))
