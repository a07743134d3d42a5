"""What a node and its worker say to each other over the worker's stdin and stdout, packed by `core.pipe_messages`.

Keys and plans travel here, in memory: never on a command line, never in the environment.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.engine.requests import Request
from core.engine.steps import TRY_S
from core.errors import Problem
from core.events import Batch, FinishReason, Plan, PromptLogprobs, Sight
from core.link.network_paths import MAX_NETWORK_PATHS, NetworkPath
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.numbers import Seconds, Size
from core.requests.answers import Message as Turn
from core.requests.trace import MOST_TURNS, PhaseTurn
from core.settings import MAX_DRAFT


class PipeMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all messages on the pipe."""


class Join(PipeMessage, frozen=True, kw_only=True):
    """Who this worker is, and the address it listens on. `wires`: whether loaded weights stay wired, on a Mac. Answered
    by `Listening`.
    """

    identity_folder: str
    passphrase: bytes
    host: str
    wires: bool = True


class Load(PipeMessage, frozen=True, kw_only=True):
    """Hold stage `index` of `plan`, from the model in `directory`. The head sends again what the ring has not answered
    within `try_s` seconds, runs at most `lanes` lanes, or as many as there are stages, and guesses at most `draft`
    tokens in a step, also by the model in the directory `drafter` if that is given. Answered by `Loading`, then
    `Loaded` or `Failed`.
    """

    plan: Plan
    index: int
    directory: str
    try_s: float = TRY_S
    lanes: int | None = None
    draft: int = MAX_DRAFT
    drafter: str = ""


class Connect(PipeMessage, frozen=True, kw_only=True):
    """Close old links, then link to the neighbours of `plan`, to the next on the best of `ways`, under the roster in
    `cluster`. The head gives the links
    new keys once one has carried `key_limits`, under the same plan and roster: a roster that changed meanwhile counts
    from the next Connect on. Answered by `Linked` or `LinkBroken`.
    """

    plan: Plan
    cluster: bytes
    ways: Annotated[tuple[NetworkPath, ...], msgspec.Meta(min_length=1, max_length=MAX_NETWORK_PATHS)]
    next_port: int
    key_limits: KeyUse = KEY_LIMITS


class ConnectPrefill(Connect, frozen=True, kw_only=True):
    """Head only: link to the Mac that reads prompts for its ring, by the `plan` that it shares with that one alone.
    Answered by `PrefillLinked` or `PrefillBroken`.
    """


class UnlinkPrefill(PipeMessage, frozen=True, kw_only=True):
    """Head only: that Mac is gone. The ring reads what it was reading."""


class Prove(PipeMessage, frozen=True, kw_only=True):
    """Head only: run a short fixed prompt; `verify` compares its logits with those of the whole model, run by a child
    from `directory`. Answered by `Proved` or `Unproved`, or by `LinkBroken`.
    """

    plan_gen: int
    directory: str
    verify: bool


class Cancel(PipeMessage, frozen=True, kw_only=True):
    """Head only: end this answer after the current step; the others go on."""

    request_id: str


class SaveSession(PipeMessage, frozen=True, kw_only=True):
    """Head only: write what all stages hold of `tokens`, the longest beginning that is parked, to the file `path`,
    sealed with `secret`, with the conversation's `messages`. Answered by `SessionSaved` or `SessionFailed`.
    """

    path: str
    secret: bytes
    tokens: list[int]
    messages: tuple[Turn, ...]
    created_at: float


class LoadSession(PipeMessage, frozen=True, kw_only=True):
    """Head only: bring what the file `path` holds to the stages, where prompts can reuse it. Answered by
    `SessionLoaded` or `SessionFailed`.
    """

    path: str
    secret: bytes


class StopSession(PipeMessage, frozen=True, kw_only=True):
    """Head only: give up what is being saved or loaded, if anything is, which is then answered by `SessionFailed`."""


class MirrorSpan(msgspec.Struct, frozen=True, array_like=True):
    """What all caches of a row hold of the tokens [start, stop): `core.worker.kv_spans` packs it. `window`: what those
    hold that keep the last tokens only. `needs`: a row can go on behind this with the windows from that token on;
    None: it cannot go on here. Of no tokens: a part of the states behind them; the last one says what a row needs.
    """

    start: Size
    stop: Size
    data: bytes
    window: bytes = b""
    needs: Size | None = 0


class MirrorSpans(PipeMessage, frozen=True, kw_only=True):
    """Head only: the next spans of what was mirrored of a request's beginning, as `WantSpans` asked for them."""

    request_id: str
    behind: Size
    spans: tuple[MirrorSpan, ...]


class StopMirror(PipeMessage, frozen=True, kw_only=True):
    """Head only: there is no memory for more of what this row holds."""

    request_id: str


class Trace(PipeMessage, frozen=True, kw_only=True):
    """Tell when this stage computed since the last Trace. Answered by `Traced`."""


class TracePhases(PipeMessage, frozen=True, kw_only=True):
    """Note the phases of every step from now on, or no longer. Answered by `TracedPhases`, with what was noted and not
    told before.
    """

    is_on: bool


class Listening(PipeMessage, frozen=True, kw_only=True):
    """The worker is up and its data listener is open. `working_set_bytes`: the memory that macOS lets the GPU use, 0
    without such a GPU.
    """

    pid: int
    port: int
    working_set_bytes: Size = 0


class Loading(PipeMessage, frozen=True, kw_only=True):
    """Bytes of the slice in memory so far; the first one, with none, says that the worker has begun."""

    plan_gen: Size
    done_bytes: Size
    total_bytes: Size


class Loaded(PipeMessage, frozen=True, kw_only=True):
    """What is in memory: layers [start, stop), the embedding and the output head where they are true, of the model
    whose files, as this worker read them, have `fingerprint`.
    """

    plan_gen: Size
    weight_bytes: Size
    seconds: Seconds
    start: Size
    stop: Size
    embed: bool
    output: bool
    fingerprint: str


class Failed(PipeMessage, frozen=True, kw_only=True):
    """The slice cannot be loaded, or does not run as one of several ranks."""

    plan_gen: Size
    problem: Problem


class Linked(PipeMessage, frozen=True, kw_only=True):
    """Both data links of this stage are sealed and bound to the plan, the one to the next stage on `way`."""

    plan_gen: Size
    way: NetworkPath


class LinkBroken(PipeMessage, frozen=True, kw_only=True):
    """A data link of this stage is gone; the layers are still in memory."""

    plan_gen: Size
    problem: Problem


class Proved(PipeMessage, frozen=True, kw_only=True):
    """The ring answered a prompt of `tokens` tokens in `seconds`. `difference`: the largest one to a logit of the whole
    model, None where that was not asked for.
    """

    plan_gen: int
    seconds: float
    tokens: int
    difference: float | None


class Unproved(PipeMessage, frozen=True, kw_only=True):
    """The ring stands, but what it computes is not to be trusted, or could not be compared."""

    plan_gen: int
    problem: Problem


class Prefilled(PipeMessage, frozen=True, kw_only=True):
    """Tokens of the prompt, and of what was written already, that went round the ring so far."""

    request_id: str
    done: int
    total: int


class Departed(PipeMessage, frozen=True, kw_only=True):
    """All of a prompt is on the ring: sealing its frames took `seal_s`, and the first of them was with the system, on
    its way to the next Mac, `at` that moment of the machine's monotonic clock. In seconds.
    """

    request_id: str
    seal_s: float
    at: float


class Token(PipeMessage, frozen=True, kw_only=True):
    """One sampled token; with `logprob` and `top`, the top (token id, logprob), if the request asked for them."""

    request_id: str
    index: int
    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class AnswerDone(PipeMessage, frozen=True, kw_only=True):
    """The answer ended, with `tokens` in all. Times in seconds, of those that were not written already: `decode_s` from
    the first of them to the last. `reused`: so many tokens of the prompt were in memory already; `beside`: so many
    were read by the Mac beside the ring. `drafted`: guessed tokens that went round, of which `accepted` were right.
    """

    request_id: str
    finish_reason: FinishReason
    prompt_tokens: int
    tokens: int
    reused: int = 0
    beside: int = 0
    drafted: int = 0
    accepted: int = 0
    ttft_s: float | None
    decode_s: float
    problem: Problem | None = None


class GpuFailed(PipeMessage, frozen=True, kw_only=True):
    """The worker ends, since its GPU gave up a step. `is_memory`: for want of memory."""

    why: str
    is_memory: bool


class GroupBroken(PipeMessage, frozen=True, kw_only=True):
    """The worker ends: the ranks of its plan can no longer add up what each of them computes, and no process can be in
    two groups.
    """

    problem: Problem


class Worked(PipeMessage, frozen=True, kw_only=True):
    """The last step of work that this stage has finished: told while it works, and before it falls idle."""

    step: int


class Batching(PipeMessage, frozen=True, kw_only=True):
    """The head's rows and queue: sent twice a second while they change, and when nothing runs any more."""

    batch: Batch


class SessionSaved(PipeMessage, frozen=True, kw_only=True):
    """The file is on disk."""


class SessionLoaded(PipeMessage, frozen=True, kw_only=True):
    """Every stage has its part, and the row is parked."""


class SessionFailed(PipeMessage, frozen=True, kw_only=True):
    """It could not be saved or loaded, and nothing of the attempt is left."""

    problem: Problem


class Mirrored(PipeMessage, frozen=True, kw_only=True):
    """KV of all stages for the next tokens of this request's row: to be kept for the next worker."""

    request_id: str
    span: MirrorSpan


class WantSpans(PipeMessage, frozen=True, kw_only=True):
    """The spans of this request behind the first `behind` ones are wanted, as many as fit one message; answered by
    `MirrorSpans`.
    """

    request_id: str
    behind: Size


class Unmirrored(PipeMessage, frozen=True, kw_only=True):
    """Nothing more of this request's row is mirrored: its states are too large, or a stage could not cut them."""

    request_id: str


class Restored(PipeMessage, frozen=True, kw_only=True):
    """The first `tokens` tokens of a request's beginning came back from the mirror; the rest is read again."""

    request_id: str
    tokens: Size


class PrefillLinked(PipeMessage, frozen=True, kw_only=True):
    """The prefill Mac reads prompts from now on."""

    plan_gen: Size


class PrefillBroken(PipeMessage, frozen=True, kw_only=True):
    """The prefill Mac reads no prompts any more; the ring reads those that it was reading."""

    plan_gen: Size
    problem: Problem


class ReadBeside(PipeMessage, frozen=True, kw_only=True):
    """The first `tokens` tokens of a request's beginning were read by the Mac beside the ring; 0: that came to nothing,
    and the ring reads them.
    """

    request_id: str
    tokens: Size


class StageSample(msgspec.Struct, frozen=True, kw_only=True):
    """What one stage spent since the ring was last idle, in seconds, frames and bytes; sent and received by this stage.
    `since`: when that was, in seconds of this Mac's monotonic clock.
    `wire_s`: of `wait_s`, what frames took from their header to their last byte. `key`: what the key of its link to the
    next stage has carried; `renewals`: how often the links got new keys.
    """

    index: Size
    since: Seconds = 0.0
    frames: Size = 0
    bytes: Size = 0
    compute_s: Seconds = 0.0
    codec_s: Seconds = 0.0
    seal_s: Seconds = 0.0
    send_s: Seconds = 0.0
    wait_s: Seconds = 0.0
    wire_s: Seconds = 0.0
    open_s: Seconds = 0.0
    queue: Size = 0
    key: KeyUse = KeyUse()
    renewals: Size = 0


class Samples(PipeMessage, frozen=True, kw_only=True):
    """Every stage's sample, in ring order, gathered by one frame that went round."""

    stages: list[StageSample]


SpanKind = Literal["chunk", "step", "output", "compose"]


class TraceSpan(msgspec.Struct, frozen=True, array_like=True):
    """A stage computed work `step` on `handle` from `start_s` to `end_s`, by the machine's monotonic clock."""

    step: int
    handle: int
    kind: SpanKind
    start_s: float
    end_s: float


class Traced(PipeMessage, frozen=True, kw_only=True):
    """The newest spans of this stage, in order, and what kinds of values it has handled."""

    spans: list[TraceSpan] = []
    seen: tuple[Sight, ...] = ()


class TracedPhases(PipeMessage, frozen=True, kw_only=True):
    """The next turns of this stage, in order, as many as fit into a message between two Macs."""

    turns: Annotated[tuple[PhaseTurn, ...], msgspec.Meta(max_length=MOST_TURNS)] = ()


# a Request goes to the head only; Departed, Prefilled, PromptLogprobs, Token and AnswerDone answer it, mixed with those
# of other requests
Command = (
    Join
    | Load
    | Connect
    | ConnectPrefill
    | UnlinkPrefill
    | Prove
    | Request
    | Cancel
    | SaveSession
    | LoadSession
    | StopSession
    | MirrorSpans
    | StopMirror
    | Trace
    | TracePhases
)
Report = (
    Listening
    | Loading
    | Loaded
    | Failed
    | Linked
    | LinkBroken
    | Proved
    | Unproved
    | Departed
    | Prefilled
    | PromptLogprobs
    | Token
    | AnswerDone
    | SessionSaved
    | SessionLoaded
    | SessionFailed
    | Mirrored
    | WantSpans
    | Restored
    | Unmirrored
    | PrefillLinked
    | PrefillBroken
    | ReadBeside
    | Samples
    | Traced
    | TracedPhases
    | Worked
    | GpuFailed
    | GroupBroken
    | Batching
)

_command_decoder = msgspec.msgpack.Decoder(Command)
_report_decoder = msgspec.msgpack.Decoder(Report)


def unpack_command(body: bytes) -> Command:
    """A command without its length; raises msgspec.ValidationError."""
    command: Command = _command_decoder.decode(body)
    return command


def unpack_report(body: bytes) -> Report:
    """A report without its length; raises msgspec.ValidationError."""
    report: Report = _report_decoder.decode(body)
    return report
