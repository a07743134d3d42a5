"""What anyone may observe: the values and events that the tui, the CLI and API clients know.

Every struct is frozen. Bytes are plain bytes, times end in `_s` (seconds), `start`/`stop` are half-open layer ranges.
`Snapshot` is the fold of all events (`core.snapshot`), so a client that joins late sees what a client that was there
from the start sees.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.errors import Problem
from core.numbers import Logprob, Rate, Seconds, Size
from core.settings import DEFAULT_ROWS

Level = Literal["blocked", "unpaired", "seen", "paired"]
PeerState = Literal["seen", "connected", "suspect", "lost"]
StageStatus = Literal["waiting", "fetching", "comparing", "loading", "linking", "ready", "broken", "lost"]
Topology = Literal["private", "forward", "reverse", "single", "tensor"]
ParallelismChoice = Literal["auto", "tp", "pp", "single"]
Strategy = Literal["tp", "pp", "single"]
BalanceChoice = Literal["memory", "speed", "auto"]
WireType = Literal["float32", "bfloat16", "int8"]
GroupKind = Literal["sealed", "rdma", "nccl"]
Sight = Literal["token ids", "activations", "logits"]
PlanStatus = Literal["none", "loading", "ready", "broken"]
FinishReason = Literal["stop", "length", "cancelled", "error"]
RecoveryState = Literal["running", "suspect", "stuck", "hold", "resume", "replan", "rebuild", "wait", "parked"]
RecoveryChoice = Literal["replan", "wait", "save", "stop"]
RowState = Literal["waiting", "reading", "writing"]
PathKind = Literal["Thunderbolt", "Ethernet", "Wi-Fi", "tunnel", ""]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of plain values."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of events; on the wire the field `type` holds the class name."""


class Peer(Value, frozen=True, kw_only=True):
    """One Mac as this node sees it. `name` is already clean; `device_id` is 26 base32 characters.

    `address` is where it is looked for first, `also_at` where after that; `problem`: why it was not reached there.
    """

    device_id: str
    name: str
    chip: str = ""
    memory_bytes: int = 0
    budget_bytes: int = 0
    used_bytes: int = 0
    state: PeerState = "seen"
    trust: Level = "unpaired"
    is_self: bool = False
    address: str = ""
    also_at: tuple[str, ...] = ()
    problem: str = ""
    found_by: Literal["self", "bonjour", "address"] = "bonjour"
    rtt_s: float | None = None
    worker_pid: int | None = None
    worker_rss_bytes: int = 0
    spare_rss_bytes: int = 0

    @property
    def short_id(self) -> str:
        """The first 8 characters of the device id, shown beside every name."""
        return self.device_id[:8]


class Stage(Value, frozen=True, kw_only=True):
    """A contiguous layer range [start, stop) on one Mac, or its part of all layers where the stages are ranks;
    `weight_bytes` includes embedding and head where owned. `step_bytes`: what computing takes beside weights and
    caches.
    """

    device_id: str
    peer: str
    start: Size
    stop: Size
    weight_bytes: Size
    kv_bytes: Size
    budget_bytes: Size
    step_bytes: Size = 0

    @property
    def needed_bytes(self) -> int:
        """What it takes of the budget."""
        return self.weight_bytes + self.kv_bytes + self.step_bytes


class Parallelism(Value, frozen=True, kw_only=True):
    """How the Macs share the work, of what was asked for: "tp", each has a part of every layer; "pp", each has layers
    of its own; "single", the head has all. `reason` is for people.

    `group`: through what the parts of a layer are added up. "rdma" and "nccl" are not encrypted on their way.
    """

    choice: ParallelismChoice
    strategy: Strategy
    reason: str
    group: GroupKind = "sealed"


class Prefill(Value, frozen=True, kw_only=True):
    """A Mac beside the ring that reads long prompts, and hands on what its caches hold of them: `stage`, all layers
    without the output. It is worth it where `least` tokens or more are in no memory, and where these would take the
    ring longer than that Mac the whole beginning: it takes `share` of the ring's time for each token.
    """

    stage: Stage
    least: Size
    share: Annotated[float, msgspec.Meta(ge=0, le=1)]


class Plan(Value, frozen=True, kw_only=True):
    """Who owns which layers. Made once, on the head; `stages` are in the order of the ring, the head first; `output`,
    a device id, has the final norm and the output head.

    In the topology "tensor" the stages are ranks: stage number i is rank i, and each has a part of every layer.
    `parallelism` is None where nobody asked for any, and the topology is not that one.

    `chunk`: tokens of a prompt that travel together; `window`: how many such chunks may be under way; `adapts`: both
    follow what the hops show; a bench keeps them fixed. `rows`: requests that run at the same time; their
    prompts and answers share `context` tokens of memory. `kv_bits`: keys and values are kept in this many bits.
    `batched`: rows may share a lane; else the model runs one row a lane. `notes`: sentences that the person should
    read before loading (a cut that was moved, a Mac that was left out, who can read the tokens). `indispensable`:
    device ids of the Macs, the head aside, without which the model cannot go on, and `nowhere_else` those of them whose
    layers the others have room for, but not on their disks; for people to read only.
    `mirror_bytes`: the head keeps what all Macs hold of the rows in so many bytes of its memory, for the case that one
    of them is lost. `wire`: as what hidden states travel between the stages; None: as the model computes them.
    `draft`: the model that guesses on
    the head, "" where none does, which takes `draft_bytes` there beside the head's budget for layers. `prefill`: who
    reads long prompts instead of the ring, None where nobody does.
    """

    plan_gen: Size
    model: str
    fingerprint: str
    topology: Topology
    layers: Size
    context: Size
    chunk: Size
    window: Size = 1
    adapts: bool = True
    rows: Size = DEFAULT_ROWS
    kv_bits: Size | None = None
    stages: tuple[Stage, ...]
    output: str
    batched: bool = True
    notes: tuple[str, ...] = ()
    indispensable: tuple[str, ...] = ()
    nowhere_else: tuple[str, ...] = ()
    mirror_bytes: Size = 0
    parallelism: Parallelism | None = None
    wire: WireType | None = None
    draft: str = ""
    draft_bytes: Size = 0
    prefill: Prefill | None = None

    @property
    def name(self) -> str:
        """The model's own, without the folder that it lies in."""
        return self.model.rpartition("/")[2]

    @property
    def head(self) -> Stage:
        """The stage of the Mac where the user loaded the model."""
        return self.stages[0]

    @property
    def parts(self) -> tuple[Stage, ...]:
        """What every Mac that takes part holds: the stages, and behind them what reads prompts beside the ring."""
        return (*self.stages, *([self.prefill.stage] if self.prefill else []))

    @property
    def owners(self) -> tuple[Stage, ...]:
        """The stages in the order of their layers."""
        return tuple(sorted(self.stages, key=lambda stage: stage.start))


class StageState(Event, frozen=True, kw_only=True):
    """A stage changed: `done_bytes` of `total_bytes` are in memory; while it is "fetching", on its Mac's disk; while it
    is "comparing", with what came to all disks, compared with the hub's hashes.
    """

    device_id: str
    status: StageStatus
    done_bytes: int = 0
    total_bytes: int = 0
    weight_bytes: int = 0
    detail: str = ""


class HopSample(Event, frozen=True, kw_only=True):
    """One directed link between neighbouring stages, summed up since the ring was last idle: `since`, in seconds of the
    monotonic clock of the head, names the sum.

    `compute_s`, `codec_s`, `seal_s` and `send_s` were spent by the sender, `wait_s` and `open_s` by the receiver; of
    `wait_s`, `wire_s` is what frames took from their header to their last byte.
    `rtt_s` is the round trip of an empty control frame between the two Macs; `queue` counts frames waiting at the
    receiver. `path`: over what kind of network it goes, "" where that is not known.
    """

    source: str
    target: str
    frames: int
    bytes: int
    compute_s: float
    codec_s: float
    seal_s: float
    send_s: float
    wait_s: float
    open_s: float
    since: float = 0.0
    wire_s: float = 0.0
    rtt_s: float | None = None
    queue: int = 0
    path: PathKind = ""


class PeerSeen(Event, frozen=True, kw_only=True):
    """A Mac was found."""

    peer: Peer


class PeerChanged(Event, frozen=True, kw_only=True):
    """Something about a known Mac changed."""

    peer: Peer


class PeerGone(Event, frozen=True, kw_only=True):
    """A Mac left; `reason` is a sentence."""

    device_id: str
    reason: str


class TrustChanged(Event, frozen=True, kw_only=True):
    """The cluster's level: the weakest member of the active plan, or of the linked Macs when no plan is active.
    `reason` says why it is below "paired".
    """

    level: Level
    weakest: str = ""
    reason: str = ""


class PairingChanged(Event, frozen=True, kw_only=True):
    """Pairing moves on: "waiting" for the other Mac, this one's window being open at `address` if that is given;
    "compare" shows `digits` and waits for those of the other screen; then "paired", "failed", or "stopped" by a person.

    `peer` and `device_id` are those of the Mac that was chosen, or that came; "" while any may come. `address` and
    `fingerprint` (SHA-256 of its key, hex) while comparing are the other Mac's. `closes_at`: seconds since the epoch.
    """

    state: Literal["waiting", "compare", "paired", "failed", "stopped"]
    peer: str = ""
    device_id: str = ""
    address: str = ""
    fingerprint: str = ""
    digits: str = ""
    closes_at: float = 0.0
    problem: Problem | None = None


class PlanProposed(Event, frozen=True, kw_only=True):
    """A plan was made and loading begins."""

    plan: Plan


class PlanLoaded(Event, frozen=True, kw_only=True):
    """Every layer is owned once, the ring is sealed and has computed; `proof` is the sentence that says how far."""

    plan_gen: int
    seconds: float
    proof: str = ""


class PlanFailed(Event, frozen=True, kw_only=True):
    """The plan cannot run, or runs no more; a reload makes a new one."""

    plan_gen: int
    problem: Problem


class PlanUnloaded(Event, frozen=True, kw_only=True):
    """The model was unloaded on request."""

    plan_gen: int


class PlanAdvice(Event, frozen=True, kw_only=True):
    """The sentence that a person should read about the plan that is loaded, "" where there is none; anew whenever an
    answer has changed it.
    """

    plan_gen: int
    text: str


class Progress(Event, frozen=True, kw_only=True):
    """Work that takes a while: `done` of `total` `unit`s of `task` ("prefill", "load", SPEED_TEST)."""

    task: str
    request_id: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""


class ModelsChanged(Event, frozen=True, kw_only=True):
    """What lies on a disk of the linked Macs changed: how the models fit is to be asked anew."""


class Transfer(Event, frozen=True, kw_only=True):
    """The files of a model come to the Mac `mac`, a device id, from the Mac `source`, or from the hub where that is "";
    only of a model that a Mac has is the `fingerprint` known.

    `done` of `total` bytes are there; `total` is 0 until it is known; they come at `bytes_per_s`, and no quicker than
    at `limit_bytes_per_s` where that is not 0. "checking": hashes are compared. What is there stays where it is
    "stopped" by a person or has "failed", and the next one goes on with it. What is "paused" goes on when a person
    wants it, and ends where something else is to come to that Mac.
    """

    model: str
    fingerprint: str = ""
    mac: str
    source: str = ""
    state: Literal["asking", "running", "checking", "paused", "done", "failed", "stopped"]
    done: Size = 0
    total: Size = 0
    bytes_per_s: Rate = 0.0
    limit_bytes_per_s: Size = 0
    problem: Problem | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state in ("done", "failed", "stopped")


class RequestStarted(Event, frozen=True, kw_only=True):
    """A request was admitted; `prompt_tokens` includes the chat template. `client`: the name of the key by which
    another program asked.
    """

    request_id: str
    prompt_tokens: int
    client: str = ""


class TokenEvent(Event, frozen=True, kw_only=True):
    """One committed token. `text` may be empty while a character or a stop text is incomplete; it is raw model output.
    `logprob` and `top`, (token id, logprob) of the most likely ones, are there where they were asked for.
    """

    request_id: str
    index: Size
    token: Size
    text: str
    logprob: Logprob | None = None
    top: tuple[tuple[Size, Logprob], ...] = ()


class TokenLogprobs(Value, frozen=True, kw_only=True):
    """A token with its logprob and the alternatives."""

    token: Size
    logprob: Logprob  # given all tokens before it
    top: tuple[tuple[Size, Logprob], ...] = ()  # (token id, logprob) of the most likely tokens


class PromptLogprobs(Event, frozen=True, kw_only=True):
    """Logprobs of tokens of a prompt. After a Mac is lost they may come again."""

    request_id: str
    start: Size  # index of the first of `tokens`; at least 1
    tokens: tuple[TokenLogprobs, ...]


class RequestDone(Event, frozen=True, kw_only=True):
    """A request ended. `text` is what was held back until the end of the answer; `ttft_s` counts from admission.
    `reused_tokens` of the prompt were in memory already, and `beside_tokens` were read by a Mac beside the ring; of
    `drafted_tokens` guessed ones `accepted_tokens` were right.
    `stop_text`: which of the request's ended it. `is_valid`: whether it has the shape that was asked for, or was cut
    off before; None where none was.
    """

    request_id: str
    finish_reason: FinishReason
    prompt_tokens: Size
    tokens: Size
    reused_tokens: Size = 0
    beside_tokens: Size = 0
    drafted_tokens: Size = 0
    accepted_tokens: Size = 0
    text: str = ""
    ttft_s: Seconds | None = None
    decode_tokens_per_s: Rate | None = None
    stop_text: str = ""
    is_valid: bool | None = None
    problem: Problem | None = None


class Recovery(Event, frozen=True, kw_only=True):
    """How the plan that this Mac leads is kept alive; `text` is the sentence for the person, `fix` what they can do.

    "suspect": `mac` is silent; "stuck": all Macs live, but no step comes back; "hold": `mac` is lost, nothing is
    computed; "resume": links are made anew, every Mac kept what it holds; "replan": another split is sought; "rebuild":
    layers load, then `done` of `total` tokens are read again, for `eta_s` seconds more (None: not known yet); "wait":
    the answers are kept until `mac` is back; "parked": they have ended, and are kept on disk, to be continued;
    "running": all is well again, and `text` belongs below the answers of `requests`, which went on.

    `mac` is a device id, "" where it is none in particular; `since` seconds since the epoch. `requests`: the answers
    that this is about, with `tokens` committed tokens in all. `plan`: what they go on with, or could. `choices`: what
    the person may say to it now, the one that is followed without a word first.
    """

    state: RecoveryState
    text: str
    fix: str = ""
    mac: str = ""
    since: float = 0.0
    requests: tuple[str, ...] = ()
    tokens: int = 0
    done: int = 0
    total: int = 0
    eta_s: float | None = None
    plan: Plan | None = None
    choices: tuple[RecoveryChoice, ...] = ()


class LogLine(Event, frozen=True, kw_only=True):
    """A line of the log of the node on the Mac `source`; `text` is clean. `at` is seconds since the epoch by the clock
    of the Mac that tells this event, to within half a round trip where another one wrote the line.
    """

    at: float
    level: Literal["DEBUG", "INFO", "WARN", "ERROR"]
    source: str
    text: str


class Counters(Event, frozen=True, kw_only=True):
    """What came to this node from the network since it started. Of those who wanted to link, `accepted` were let in to
    prove themselves; the others and those who failed were sent away. `mdns_records` and `links_open` are of now.
    """

    accepted: int = 0
    refused_by_rate: int = 0
    refused_full: int = 0
    failed_tls: int = 0
    failed_hello: int = 0
    failed_auth: int = 0
    timed_out: int = 0
    links_open: int = 0
    pairing_attempts: int = 0
    mdns_records: int = 0
    mdns_evicted: int = 0
    mdns_refused: int = 0


class BatchRow(Value, frozen=True, kw_only=True):
    """A request on the head: it waits to be admitted, its prompt is read, or its answer is written.

    `read`: so many tokens of its beginning, which is its prompt and what was written of an answer that goes on, went
    round the ring, or were in memory already, as `reused` of them were. At most `max_tokens` are `written`; 0: nobody
    has said so yet. `lane`: the number of its lane, from 1. `tokens_per_s` counts from its first token. `client`: the
    name of the key by which another program asked.
    """

    request_id: str
    state: RowState = "waiting"
    prompt_tokens: int = 0
    read: int = 0
    reused: int = 0
    written: int = 0
    max_tokens: int = 0
    lane: int | None = None
    tokens_per_s: float | None = None
    client: str = ""


class BatchLane(Value, frozen=True, kw_only=True):
    """Rows that step together. `in_flight`: a step of them is on the ring."""

    rows: int
    in_flight: bool = False


class ApiStopped(Event, frozen=True, kw_only=True):
    """Other programs are served no longer."""


class ApiClient(Value, frozen=True, kw_only=True):
    """A key of the API by its `name`; `hint` is how it ends, "" where nobody knows; `made` in seconds since the epoch.
    So many requests with it are `asking` now.
    """

    name: str
    hint: str = ""
    made: float = 0.0
    asking: int = 0


class ApiClients(Event, frozen=True, kw_only=True):
    """Who may use the API of this Mac, in the order in which their keys were made."""

    clients: tuple[ApiClient, ...] = ()


class LedElsewhere(Event, frozen=True, kw_only=True):
    """Programs that ask this Mac are answered by another one, which leads `model`; "" where none does, or may."""

    model: str = ""


class ApiServed(Event, frozen=True, kw_only=True):
    """Other programs are served at `url`; where that is over TLS, `fingerprint` is the SHA-256 of the certificate, hex.
    `warning`: what the person should keep in mind meanwhile.
    """

    url: str
    fingerprint: str = ""
    warning: str = ""


class Batch(Event, frozen=True, kw_only=True):
    """What the head works on: `rows` that run, then those that wait, in the order of the queue; `lanes`, by number; and
    so many `chunks` of prompts that are on the ring. Told twice a second while there is anything to tell.

    Of the plan's `context` tokens, rows that run hold `used_tokens`, and may take `reserved_tokens` until their answers
    are as long as was allowed; `parked_tokens` are kept of answers that ended, as long as nobody needs the room.
    """

    rows: tuple[BatchRow, ...] = ()
    lanes: tuple[BatchLane, ...] = ()
    chunks: int = 0
    used_tokens: int = 0
    reserved_tokens: int = 0
    parked_tokens: int = 0

    @property
    def running(self) -> tuple[BatchRow, ...]:
        """The rows that were admitted."""
        return tuple(row for row in self.rows if row.state != "waiting")

    @property
    def queue(self) -> tuple[BatchRow, ...]:
        """The rows that were not, the next one first."""
        return tuple(row for row in self.rows if row.state == "waiting")

    @property
    def in_flight(self) -> int:
        """Lanes whose step is on the ring."""
        return sum(lane.in_flight for lane in self.lanes)


class Snapshot(Event, frozen=True, kw_only=True):
    """Everything that the events so far amount to; the first event of every stream."""

    version: str = ""
    peers: tuple[Peer, ...] = ()
    trust: TrustChanged = TrustChanged(level="unpaired")
    plan: Plan | None = None
    plan_status: PlanStatus = "none"
    plan_problem: Problem | None = None
    stages: tuple[StageState, ...] = ()
    hops: tuple[HopSample, ...] = ()
    running: tuple[str, ...] = ()
    last_done: RequestDone | None = None
    logs: tuple[LogLine, ...] = ()
    counters: Counters = Counters()
    batch: Batch = Batch()
    pairing: PairingChanged | None = None
    recovery: Recovery | None = None
    transfers: tuple[Transfer, ...] = ()
    advice: str = ""
    api: ApiServed | None = None
    clients: tuple[ApiClient, ...] = ()
    led_elsewhere: str = ""

    def name_of(self, device_id: str) -> str:
        """A Mac as people call it, or the beginning of the id of one that is not known."""
        return next((peer.name for peer in self.peers if peer.device_id == device_id), device_id[:8])


AnyEvent = (
    Snapshot
    | PeerSeen
    | PeerChanged
    | PeerGone
    | TrustChanged
    | PairingChanged
    | PlanProposed
    | PlanLoaded
    | PlanFailed
    | PlanUnloaded
    | PlanAdvice
    | StageState
    | HopSample
    | Progress
    | ModelsChanged
    | Transfer
    | RequestStarted
    | TokenEvent
    | PromptLogprobs
    | RequestDone
    | Recovery
    | LogLine
    | Counters
    | Batch
    | ApiServed
    | ApiStopped
    | ApiClients
    | LedElsewhere
)

SPEED_TEST = "speed test"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


def encode_event(event: AnyEvent) -> bytes:
    """One line of JSON."""
    return _encoder.encode(event)


def decode_event(line: bytes | str) -> AnyEvent:
    """The event of one line of JSON; raises msgspec.ValidationError."""
    event: AnyEvent = _decoder.decode(line)
    return event
