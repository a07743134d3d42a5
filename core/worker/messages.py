"""Messages between a node and its worker over the worker's stdin and stdout, packed by `core.pipe_messages`.

Keys and plans travel here, in memory: never on a command line, never in the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal

import msgspec

from core.engine.requests import Request
from core.engine.steps import TRY_S
from core.errors import Problem
from core.events import AnswerFigures, Batch, Plan, PromptLogprobs, Sight
from core.link.network_paths import MAX_NETWORK_PATHS, NetworkPath
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.numbers import Seconds, Size
from core.requests.answers import Message as Turn
from core.requests.trace import MOST_TURNS, PhaseTurn
from core.settings import MAX_DRAFT


class PipeMessage(msgspec.Struct, frozen=True, kw_only=True, tag=""):
    """Base of all messages on the pipe."""


class Join(PipeMessage, frozen=True, kw_only=True, tag="Join"):
    """The worker's identity and listen address. Answered by `Listening`."""

    identity_folder: str
    passphrase: bytes
    host: str
    wires: bool = True  # whether loaded weights stay wired, on a Mac


class Load(PipeMessage, frozen=True, kw_only=True, tag="Load"):
    """Load stage `index` of `plan` from the model in `directory`. Answered by `Loading`, then `Loaded` or `Failed`."""

    plan: Plan
    index: int
    directory: str
    try_s: float = TRY_S  # the head resends unanswered work after this, in seconds
    lanes: int | None = None  # at most; None: as many as stages
    draft: int = MAX_DRAFT  # most draft tokens in a step
    drafter: str = ""  # directory of the draft model, if any
    references: str = ""  # directory of whole models' logits, on the head; "": the ring is compared with none
    verify: bool = False  # make them again


class Connect(PipeMessage, frozen=True, kw_only=True, tag="Connect"):
    """Close old links, then link to the neighbours of `plan`. Answered by `Linked` or `LinkBroken`."""

    plan: Plan
    digest: bytes  # of the plan as its head sent it
    cluster: bytes  # the roster that all links use until the next Connect
    # to the next stage, the best first
    ways: Annotated[tuple[NetworkPath, ...], msgspec.Meta(min_length=1, max_length=MAX_NETWORK_PATHS)]
    next_port: int
    key_limits: KeyUse = KEY_LIMITS  # the head renews the links' keys after one has carried this


class ConnectPrefill(Connect, frozen=True, kw_only=True, tag="ConnectPrefill"):
    """Head only: link to the prefill Mac by their own `plan`. Answered by `PrefillLinked` or `PrefillBroken`."""


class UnlinkPrefill(PipeMessage, frozen=True, kw_only=True, tag="UnlinkPrefill"):
    """Head only: the prefill Mac is gone. The ring reads its unfinished prompt."""


class Prove(PipeMessage, frozen=True, kw_only=True, tag="Prove"):
    """Head only: run a short fixed prompt. Answered by `Proved` or `Unproved`, or by `LinkBroken`."""

    plan_gen: int


class Cancel(PipeMessage, frozen=True, kw_only=True, tag="Cancel"):
    """Head only: end this answer after the current step."""

    request_id: str


class SaveSession(PipeMessage, frozen=True, kw_only=True, tag="SaveSession"):
    """Head only: write the KV of all stages for the longest cached prefix of `tokens` to the file `path`, sealed with
    `secret`. Answered by `SessionSaved` or `SessionFailed`.
    """

    path: str
    secret: bytes
    tokens: list[int]
    messages: tuple[Turn, ...]
    created_at: float


class LoadSession(PipeMessage, frozen=True, kw_only=True, tag="LoadSession"):
    """Head only: bring a saved session to the stages. Answered by `SessionLoaded` or `SessionFailed`."""

    path: str
    secret: bytes


class StopSession(PipeMessage, frozen=True, kw_only=True, tag="StopSession"):
    """Head only: give up the save or load in progress, which is answered by `SessionFailed`."""


class MirrorSpan(msgspec.Struct, frozen=True, array_like=True):
    """The KV of tokens [start, stop) of a row, in all caches; of no tokens: a part of the states after them."""

    start: Size
    stop: Size
    data: bytes  # packed by `core.worker.kv_spans`
    window: bytes = b""  # KV of caches that keep only the last tokens
    needs: Size | None = 0  # a row can continue after this with the windows from that token on; None: not here


class MirrorSpans(PipeMessage, frozen=True, kw_only=True, tag="MirrorSpans"):
    """Head only: the next mirrored spans of a request, as `WantSpans` requested them."""

    request_id: str
    behind: Size
    spans: tuple[MirrorSpan, ...]


class StopMirror(PipeMessage, frozen=True, kw_only=True, tag="StopMirror"):
    """Head only: there is no memory to mirror more of this row."""

    request_id: str


class Trace(PipeMessage, frozen=True, kw_only=True, tag="Trace"):
    """Request the compute times since the last Trace. Answered by `Traced`."""


class TracePhases(PipeMessage, frozen=True, kw_only=True, tag="TracePhases"):
    """Turn tracing of step phases on or off. Answered by `TracedPhases`, with what was traced since the last one."""

    is_on: bool


class Listening(PipeMessage, frozen=True, kw_only=True, tag="Listening"):
    """The worker runs and its data listener is open."""

    pid: int
    port: int
    working_set_bytes: Size = 0  # GPU memory that macOS allows, 0 without such a GPU
    compute: str = ""  # `core.version.compute_hash` of its files


class Loading(PipeMessage, frozen=True, kw_only=True, tag="Loading"):
    """Bytes loaded so far; the first message, with none, reports the start."""

    plan_gen: Size
    done_bytes: Size
    total_bytes: Size


class Loaded(PipeMessage, frozen=True, kw_only=True, tag="Loaded"):
    """The layers [start, stop) are loaded."""

    plan_gen: Size
    weight_bytes: Size
    seconds: Seconds
    start: Size
    stop: Size
    embed: bool  # has the embedding
    output: bool  # has the output head
    fingerprint: str  # of the model's files, as this worker read them
    mlx_lm: Annotated[str, msgspec.Meta(max_length=64)] = ""  # version


class Failed(PipeMessage, frozen=True, kw_only=True, tag="Failed"):
    """The slice can't be loaded, or can't run as one of several ranks."""

    plan_gen: Size
    problem: Problem


class Linked(PipeMessage, frozen=True, kw_only=True, tag="Linked"):
    """Both data links of this stage are sealed and bound to the plan."""

    plan_gen: Size
    way: NetworkPath  # of the link to the next stage


class LinkBroken(PipeMessage, frozen=True, kw_only=True, tag="LinkBroken"):
    """A data link of this stage is gone; the layers are still loaded."""

    plan_gen: Size
    problem: Problem


class Proving(PipeMessage, frozen=True, kw_only=True, tag="Proving"):
    """The proof goes on: a part of its prompt is read."""


class Proved(PipeMessage, frozen=True, kw_only=True, tag="Proved"):
    """The ring answered a prompt of `tokens` tokens in `seconds`."""

    plan_gen: int
    seconds: float
    tokens: int
    difference: float | None  # largest difference from a logit of the whole model; None if not compared
    why: str = ""  # why it could not be compared, as the end of a sentence


class Unproved(PipeMessage, frozen=True, kw_only=True, tag="Unproved"):
    """The ring is linked, but its results are wrong."""

    plan_gen: int
    problem: Problem


class Prefilled(PipeMessage, frozen=True, kw_only=True, tag="Prefilled"):
    """Tokens of prompt and written answer that went round the ring so far."""

    request_id: str
    done: int
    total: int


class Departed(PipeMessage, frozen=True, kw_only=True, tag="Departed"):
    """All of a prompt is on the ring."""

    request_id: str
    seal_s: float  # seconds of sealing its frames
    at: float  # when the system had the first one, in seconds of the monotonic clock


class Token(PipeMessage, frozen=True, kw_only=True, tag="Token"):
    """One sampled token; with `logprob` and `top`, the top (token id, logprob), if requested."""

    request_id: str
    index: int
    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class AnswerDone(AnswerFigures, frozen=True, kw_only=True, tag="AnswerDone"):
    """The answer ended. `tokens` counts all; times are of tokens that were not written before."""


class GpuFailed(PipeMessage, frozen=True, kw_only=True, tag="GpuFailed"):
    """The worker ends: its GPU failed a step."""

    why: str
    is_memory: bool  # out of memory


class GroupBroken(PipeMessage, frozen=True, kw_only=True, tag="GroupBroken"):
    """The worker ends: its ranks can't add up results any more, and a process can join only one group."""

    problem: Problem


class Worked(PipeMessage, frozen=True, kw_only=True, tag="Worked"):
    """The last step that this stage has finished, reported during work and before it idles."""

    step: int


class SessionSaved(PipeMessage, frozen=True, kw_only=True, tag="SessionSaved"):
    """The file is on disk."""


class SessionLoaded(PipeMessage, frozen=True, kw_only=True, tag="SessionLoaded"):
    """Every stage has its part, and the row is cached."""


class SessionFailed(PipeMessage, frozen=True, kw_only=True, tag="SessionFailed"):
    """The save or load failed and left nothing."""

    problem: Problem


class Mirrored(PipeMessage, frozen=True, kw_only=True, tag="Mirrored"):
    """KV of all stages for the next tokens of this request's row, to be kept for the next worker."""

    request_id: str
    span: MirrorSpan


class WantSpans(PipeMessage, frozen=True, kw_only=True, tag="WantSpans"):
    """Request as many spans after the first `behind` ones as fit one message. Answered by `MirrorSpans`."""

    request_id: str
    behind: Size


class Unmirrored(PipeMessage, frozen=True, kw_only=True, tag="Unmirrored"):
    """This request's row is mirrored no further: its states are too large, or a stage could not cut them."""

    request_id: str


class Restored(PipeMessage, frozen=True, kw_only=True, tag="Restored"):
    """The first `tokens` tokens of a request were restored from the mirror; the rest is read again."""

    request_id: str
    tokens: Size


class PrefillLinked(PipeMessage, frozen=True, kw_only=True, tag="PrefillLinked"):
    """The prefill Mac reads prompts from now on."""

    plan_gen: Size


class PrefillBroken(PipeMessage, frozen=True, kw_only=True, tag="PrefillBroken"):
    """The prefill Mac stopped reading; the ring reads its unfinished prompts."""

    plan_gen: Size
    problem: Problem


class ReadBeside(PipeMessage, frozen=True, kw_only=True, tag="ReadBeside"):
    """The prefill Mac read the first `tokens` tokens of a request; 0: it failed, and the ring reads them."""

    request_id: str
    tokens: Size


class StageSample(msgspec.Struct, frozen=True, kw_only=True):
    """One stage's work since the ring was last idle, in seconds, frames and bytes sent and received."""

    index: Size
    since: Seconds = 0.0  # when that was, in seconds of this Mac's monotonic clock
    frames: Size = 0
    bytes: Size = 0
    compute_s: Seconds = 0.0
    codec_s: Seconds = 0.0
    seal_s: Seconds = 0.0
    send_s: Seconds = 0.0
    wait_s: Seconds = 0.0
    wire_s: Seconds = 0.0  # of `wait_s`, from a frame's header to its last byte
    open_s: Seconds = 0.0
    queue: Size = 0
    key: KeyUse = KeyUse()  # use of the key of its link to the next stage
    renewals: Size = 0  # how often the links got new keys


class Samples(PipeMessage, frozen=True, kw_only=True, tag="Samples"):
    """Every stage's sample, in ring order, gathered by one frame."""

    stages: list[StageSample]


SpanKind = Literal["chunk", "step", "output", "compose"]


class TraceSpan(msgspec.Struct, frozen=True, array_like=True):
    """One computation of a stage, in seconds of the monotonic clock."""

    step: int
    handle: int
    kind: SpanKind
    start_s: float
    end_s: float


class Traced(PipeMessage, frozen=True, kw_only=True, tag="Traced"):
    """The newest spans of this stage, in order, and the kinds of values it has handled."""

    spans: list[TraceSpan] = []
    seen: tuple[Sight, ...] = ()


class TracedPhases(PipeMessage, frozen=True, kw_only=True, tag="TracedPhases"):
    """The next turns of this stage, in order, as many as fit a message between two Macs."""

    turns: Annotated[tuple[PhaseTurn, ...], msgspec.Meta(max_length=MOST_TURNS)] = ()


# only the head gets a Request; Departed, Prefilled, PromptLogprobs, Token and AnswerDone answer it, interleaved with
# other requests'
_RingCommand = Join | Load | Connect | Prove | Trace | TracePhases
_PrefillCommand = ConnectPrefill | UnlinkPrefill
_AnswerCommand = Request | Cancel | MirrorSpans | StopMirror
_SessionCommand = SaveSession | LoadSession | StopSession
Command = _RingCommand | _PrefillCommand | _AnswerCommand | _SessionCommand

_RingReport = Listening | Loading | Loaded | Failed | Linked | LinkBroken | Proving | Proved | Unproved
_PrefillReport = PrefillLinked | PrefillBroken | ReadBeside
_AnswerReport = (
    Departed | Prefilled | PromptLogprobs | Token | AnswerDone | Mirrored | WantSpans | Restored | Unmirrored
)
_SessionReport = SessionSaved | SessionLoaded | SessionFailed
_Figures = Batch | Samples | Traced | TracedPhases | Worked
Report = _RingReport | _PrefillReport | _AnswerReport | _SessionReport | _Figures | GpuFailed | GroupBroken

unpack_command: Final[Callable[[bytes], Command]] = msgspec.msgpack.Decoder(Command).decode
unpack_report: Final[Callable[[bytes], Report]] = msgspec.msgpack.Decoder(Report).decode
