"""Values and events that clients observe: the TUI, the CLI and API clients know nothing else of a node.

Every struct is frozen. Times end in `_s` (seconds), `start`/`stop` are half-open layer ranges. `Snapshot` is the fold
of all events (`core.snapshot`), so a client that connects later sees the same state.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from core.errors import Problem
from core.numbers import Logprob, Moment, Positive, Rate, Seconds, Size
from core.settings import DEFAULT_ROWS

Level = Literal["blocked", "unpaired", "seen", "paired"]
PeerState = Literal["seen", "connected", "suspect", "lost", "needs an update"]
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
PlanPhase = Literal["loading", "linking", "proving", "failed"] | RecoveryState
RecoveryChoice = Literal["replan", "wait", "save", "stop"]
RowState = Literal["waiting", "reading", "writing"]
PathKind = Literal["Thunderbolt", "Ethernet", "Wi-Fi", "tunnel", ""]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of plain values."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=""):
    """Base of events; the JSON field `type` holds the tag, which each writes out."""


class MacFigures(Value, frozen=True, kw_only=True):
    """A Mac's chip, memory and workers."""

    chip: str = ""
    memory_bytes: Size = 0
    budget_bytes: Size = 0  # memory a model may use; 0 if it is not ready to hold layers
    used_bytes: Size = 0
    worker_pid: Size | None = None
    worker_rss_bytes: Size = 0
    spare_rss_bytes: Size = 0  # memory of the spare worker

    @property
    def figures(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in MacFigures.__struct_fields__}


class Peer(MacFigures, frozen=True, kw_only=True):
    """A Mac as this node sees it."""

    device_id: str  # 26 base32 characters
    name: str  # already clean
    state: PeerState = "seen"
    trust: Level = "unpaired"
    is_self: bool = False
    address: str = ""  # tried first
    also_at: tuple[str, ...] = ()  # tried next, in order
    problem: str = ""  # why it can't be reached, or hold layers; what to do about it
    found_by: Literal["self", "bonjour", "address"] = "bonjour"
    rtt_s: float | None = None
    version: str = ""  # of macluster
    runs_on: str = ""  # other versions, in words

    @property
    def short_id(self) -> str:
        return self.device_id[:8]


class Stage(Value, frozen=True, kw_only=True):
    """A layer range [start, stop) on one Mac; of a rank, its part of every layer."""

    device_id: str
    peer: str  # name of the Mac
    start: Size
    stop: Size
    weight_bytes: Size  # with embedding and output head, if they are on this Mac
    kv_bytes: Size  # caches of the whole context
    budget_bytes: Size
    step_bytes: Size = 0  # temporary memory of a step
    tokenizer_bytes: Size = 0  # processes that make prompts and the text of answers, on the head

    @property
    def needed_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.step_bytes + self.tokenizer_bytes


class Parallelism(Value, frozen=True, kw_only=True):
    """How the Macs share the work."""

    choice: ParallelismChoice  # what the user asked for
    strategy: Strategy  # "tp": a part of every layer each; "pp": layers of their own; "single": head only
    reason: str  # for users
    group: GroupKind = "sealed"  # how parts are summed; "rdma" and "nccl" are not encrypted


class Prefill(Value, frozen=True, kw_only=True):
    """A Mac outside the ring that prefills long prompts and sends the caches to the stages."""

    stage: Stage  # all layers, without the output head
    least: Size  # only prompts with at least this many uncached tokens
    share: Annotated[float, msgspec.Meta(ge=0, le=1)]  # its time per token, as a share of the ring's


class Plan(Value, frozen=True, kw_only=True):
    """The Macs of a model and their layers. Made once, on the head."""

    plan_gen: Size  # generation of this head's plans
    model: str
    fingerprint: str  # of the model, hex
    topology: Topology
    layers: Size
    context: Size  # tokens, shared by all rows
    chunk: Size  # prompt tokens per frame
    window: Size = 1  # prompt chunks in flight
    adapts: bool = True  # chunk and window follow the measured hops; benches fix them
    rows: Size = DEFAULT_ROWS  # requests that run at the same time
    kv_bits: Size | None = None  # bits of a key or value; None: the model's own
    stages: tuple[Stage, ...]  # in ring order, the head first; of a tensor plan, stage i is rank i
    output: str  # device id of the Mac with the final norm and the output head
    batched: bool = True  # rows may share a lane
    notes: tuple[str, ...] = ()  # sentences to read before loading
    indispensable: tuple[str, ...] = ()  # device ids of Macs that can't drop out; without the head
    # part of `indispensable`: their layers would fit elsewhere, but are on no other disk
    nowhere_else: tuple[str, ...] = ()
    mirror_bytes: Size = 0  # memory of the head for copies of all caches; 0: none
    parallelism: Parallelism | None = None  # None: not asked for, and not a tensor plan
    wire: WireType | None = None  # dtype of hidden states between stages; None: as computed
    draft: str = ""  # model for speculative decoding on the head, "" for none
    draft_bytes: Size = 0  # its memory, in addition to the head's layers
    prefill: Prefill | None = None  # None: the ring reads all prompts
    needs: tuple[str, ...] = ()  # what a member's macluster has to be able to do, of `core.version.CAPS`

    @property
    def name(self) -> str:
        return self.model.rpartition("/")[2]

    @property
    def head(self) -> Stage:
        """The stage of the Mac where the user loaded the model."""
        return self.stages[0]

    @property
    def parts(self) -> tuple[Stage, ...]:
        return (*self.stages, *([self.prefill.stage] if self.prefill else []))

    @property
    def owners(self) -> tuple[Stage, ...]:
        return tuple(sorted(self.stages, key=lambda stage: stage.start))


class StageState(Event, frozen=True, kw_only=True, tag="StageState"):
    """A stage changed."""

    device_id: str
    status: StageStatus
    # of `total_bytes`: loaded; or on disk (fetching); or checked against the hub's hashes (comparing)
    done_bytes: int = 0
    total_bytes: int = 0
    weight_bytes: int = 0
    detail: str = ""


class HopSample(Event, frozen=True, kw_only=True, tag="HopSample"):
    """Totals of one directed link between neighbouring stages since the ring was last idle."""

    source: str
    target: str
    frames: int
    bytes: int  # inside TLS
    compute_s: float  # sender
    codec_s: float  # sender
    seal_s: float  # sender
    send_s: float  # sender
    wait_s: float  # receiver
    open_s: float  # receiver
    since: float = 0.0  # identifies the totals: when they started, monotonic clock of the head
    wire_s: float = 0.0  # part of `wait_s`: from a frame's header to its last byte
    rtt_s: float | None = None  # of an empty control frame
    queue: int = 0  # frames waiting at the receiver
    path: PathKind = ""


class PeerSeen(Event, frozen=True, kw_only=True, tag="PeerSeen"):
    """A new Mac was found."""

    peer: Peer


class PeerChanged(Event, frozen=True, kw_only=True, tag="PeerChanged"):
    """A known Mac changed."""

    peer: Peer


class PeerGone(Event, frozen=True, kw_only=True, tag="PeerGone"):
    """A Mac left."""

    device_id: str
    reason: str  # a sentence


class TrustChanged(Event, frozen=True, kw_only=True, tag="TrustChanged"):
    """Trust level of the cluster: the weakest member of the active plan, else of the linked Macs."""

    level: Level
    weakest: str = ""  # name
    reason: str = ""  # why the level is below "paired"


class PairingChanged(Event, frozen=True, kw_only=True, tag="PairingChanged"):
    """A step of pairing.

    "waiting": this Mac's window is open; "compare": both Macs show digits; then "paired", "failed" or "stopped" by the
    user.
    """

    state: Literal["waiting", "compare", "paired", "failed", "stopped"]
    peer: str = ""  # name of the chosen or calling Mac; "" if any may come
    device_id: str = ""
    address: str = ""  # while waiting, this Mac's window; while comparing, the other Mac
    fingerprint: str = ""  # SHA-256 of the other Mac's key, hex
    digits: str = ""  # to type on the other Mac
    closes_at: float = 0.0  # seconds since the epoch
    problem: Problem | None = None


class PlanProposed(Event, frozen=True, kw_only=True, tag="PlanProposed"):
    """A plan was made; loading starts."""

    plan: Plan


class PlanLoaded(Event, frozen=True, kw_only=True, tag="PlanLoaded"):
    """The model is loaded, and the ring computed a test step."""

    plan_gen: int
    seconds: float
    proof: str = ""  # sentence: how far the result was checked


class PlanFailed(Event, frozen=True, kw_only=True, tag="PlanFailed"):
    """The plan can't run, or stopped; a reload makes a new one."""

    plan_gen: int
    problem: Problem


class PlanUnloaded(Event, frozen=True, kw_only=True, tag="PlanUnloaded"):
    """The model was unloaded on request."""

    plan_gen: int


class PlanAdvice(Event, frozen=True, kw_only=True, tag="PlanAdvice"):
    """Advice about the loaded plan; sent again when an answer changes it."""

    plan_gen: int
    text: str  # a sentence, "" for none


class Progress(Event, frozen=True, kw_only=True, tag="Progress"):
    """Progress of a long task."""

    task: str  # "prefill", "load" or SPEED_TEST
    request_id: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""


class ModelsChanged(Event, frozen=True, kw_only=True, tag="ModelsChanged"):
    """Files on a linked Mac changed: ask again how models fit."""


class Transfer(Event, frozen=True, kw_only=True, tag="Transfer"):
    """A download or copy of model files to a Mac. Files of a stopped or failed transfer are kept for the next one. A
    paused one ends when another transfer to that Mac starts.
    """

    model: str
    fingerprint: str = ""  # "" if no Mac has the model
    mac: str  # receiving Mac, device id
    source: str = ""  # sending Mac, device id; "": the hub
    state: Literal["asking", "running", "checking", "paused", "done", "failed", "stopped"]
    done: Size = 0  # bytes
    total: Size = 0  # bytes; 0: not known yet
    bytes_per_s: Rate = 0.0
    limit_bytes_per_s: Size = 0  # 0: no limit
    waits_until: Moment = 0.0  # the hub takes no request before; 0: it does
    problem: Problem | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "stopped")


class RequestStarted(Event, frozen=True, kw_only=True, tag="RequestStarted"):
    """A request was admitted."""

    request_id: str
    prompt_tokens: int  # with the chat template
    client: str = ""  # name of the API key, "" for this Mac's own clients


class TokenEvent(Event, frozen=True, kw_only=True, tag="TokenEvent"):
    """One committed token."""

    request_id: str
    index: Size
    token: Size
    text: str  # raw model output; "" while a character or a stop text is incomplete
    logprob: Logprob | None = None  # if requested
    top: tuple[tuple[Size, Logprob], ...] = ()  # (token id, logprob) of the most likely tokens
    names: tuple[str, ...] = ()  # texts of the tokens in `top`


class TokenLogprobs(Value, frozen=True, kw_only=True):
    """A token with its logprob and the alternatives."""

    token: Size
    logprob: Logprob  # given all tokens before it
    top: tuple[tuple[Size, Logprob], ...] = ()  # (token id, logprob) of the most likely tokens
    names: tuple[str, ...] = ()  # texts of the token and of those in `top`


class PromptLogprobs(Event, frozen=True, kw_only=True, tag="PromptLogprobs"):
    """Logprobs of tokens of a prompt. After a Mac is lost they may come again."""

    request_id: str
    start: Size  # index of the first of `tokens`; at least 1
    tokens: tuple[TokenLogprobs, ...]


class AnswerFigures(Event, frozen=True, kw_only=True):
    """How a request ended, and its figures."""

    request_id: str
    finish_reason: FinishReason
    prompt_tokens: Size
    tokens: Size
    reused_tokens: Size = 0  # prompt tokens found in a cache
    beside_tokens: Size = 0  # prompt tokens read by the prefill Mac
    drafted_tokens: Size = 0  # guessed by speculation
    accepted_tokens: Size = 0  # guessed right
    ttft_s: Seconds | None = None  # since admission
    decode_tokens_per_s: Rate | None = None
    problem: Problem | None = None


class RequestDone(AnswerFigures, frozen=True, kw_only=True, tag="RequestDone"):
    """A request ended."""

    text: str = ""  # held back until the end of the answer
    stop_text: str = ""  # which stop text ended it
    is_valid: bool | None = None  # whether it has the requested shape (False if cut off); None: no shape


class Recovery(Event, frozen=True, kw_only=True, tag="Recovery"):
    """Recovery of the plan that this Mac leads after a Mac failed.

    "suspect": `mac` is silent; "stuck": all Macs respond, but no step returns; "hold": `mac` is lost; "resume":
    reconnecting, all caches are intact; "replan": planning another split; "rebuild": loading layers, then reading
    `total` tokens again; "wait": answers wait for `mac`; "parked": answers were saved to be continued; "running":
    recovered, show `text` under the answers of `requests`.
    """

    state: RecoveryState
    text: str  # sentence for the user
    fix: str = ""  # what the user can do
    mac: str = ""  # device id; "": no Mac in particular
    since: float = 0.0  # seconds since the epoch
    requests: tuple[str, ...] = ()  # affected answers
    tokens: int = 0  # written in these answers
    done: int = 0  # of `total` tokens read again
    total: int = 0
    eta_s: float | None = None  # None: not known yet
    plan: Plan | None = None  # the plan to continue with, or that could be
    choices: tuple[RecoveryChoice, ...] = ()  # what the user can choose, the default first


class LogLine(Event, frozen=True, kw_only=True, tag="LogLine"):
    """A log line of a Mac's node."""

    at: float  # seconds since the epoch, clock of the Mac that sends this event, within half a round trip
    level: Literal["DEBUG", "INFO", "WARN", "ERROR"]
    source: str  # name of the Mac
    text: str  # clean


class Counters(Event, frozen=True, kw_only=True, tag="Counters"):
    """Network events of this node since it started; `links_open` and `mdns_records` are current numbers."""

    accepted: int = 0  # connections that got a handshake
    refused_by_rate: int = 0
    refused_full: int = 0
    failed_tls: int = 0
    failed_hello: int = 0
    failed_auth: int = 0
    timed_out: int = 0
    links_open: int = 0
    ignored_messages: int = 0  # of other versions of macluster
    pairing_attempts: int = 0
    mdns_records: int = 0
    mdns_evicted: int = 0
    mdns_refused: int = 0


class BatchRow(Value, frozen=True, kw_only=True):
    """A request on the head: queued, reading its prompt, or writing its answer."""

    request_id: str
    state: RowState = "waiting"
    prompt_tokens: int = 0
    read: int = 0  # tokens of the prompt, and of an answer that is continued, that were prefilled or reused
    reused: int = 0  # part of `read` found in a cache
    written: int = 0
    max_tokens: int = 0  # 0: not known yet
    lane: int | None = None  # number, from 1
    tokens_per_s: float | None = None  # since the first token
    client: str = ""  # name of the API key


class BatchLane(Value, frozen=True, kw_only=True):
    """Rows that step together."""

    rows: int
    in_flight: bool = False  # a step is on the ring


class ApiStopped(Event, frozen=True, kw_only=True, tag="ApiStopped"):
    """The API for other programs was switched off."""


class ApiClient(Value, frozen=True, kw_only=True):
    """An API key."""

    name: str
    hint: str = ""  # last characters of the key, "" if unknown
    made: float = 0.0  # seconds since the epoch
    asking: int = 0  # requests running now


class ApiClients(Event, frozen=True, kw_only=True, tag="ApiClients"):
    """The API keys of this Mac, oldest first."""

    clients: tuple[ApiClient, ...] = ()


class LedFacts(Value, frozen=True, kw_only=True):
    """Facts about a plan, from the Mac that leads it."""

    status: PlanStatus = "ready"
    answers: Size = 0  # run or wait there
    rows: Positive = DEFAULT_ROWS  # requests at a time
    context: Size = 0  # tokens; 0: not told
    takes_relayed: bool = False  # that Mac answers requests that other Macs relay


class LedPlan(LedFacts, frozen=True, kw_only=True):
    """A plan that another paired Mac leads."""

    head: str  # device id of that Mac
    led_by: str  # its name
    model: str
    fingerprint: str = ""  # of the model, hex; "": not told
    plan: Plan | None = None  # if this Mac holds layers of it


class Elsewhere(Event, frozen=True, kw_only=True, tag="Elsewhere"):
    """The plans that other Macs lead: first the one that this Mac holds layers of."""

    plans: tuple[LedPlan, ...] = ()


class InstallationChanged(Event, frozen=True, kw_only=True, tag="InstallationChanged"):
    """macluster was updated or removed while this node runs."""

    text: str  # a sentence; "": it is again as it was


class ApiServed(Event, frozen=True, kw_only=True, tag="ApiServed"):
    """The API for other programs is on."""

    url: str
    fingerprint: str = ""  # SHA-256 of the TLS certificate, hex; "" without TLS
    warning: str = ""  # for the user to keep in mind


class Batch(Event, frozen=True, kw_only=True, tag="Batch"):
    """Work of the head, sent twice a second while there is any. The last three figures share the plan's `context`."""

    rows: tuple[BatchRow, ...] = ()  # running, then queued, each in order
    lanes: tuple[BatchLane, ...] = ()  # by number
    chunks: int = 0  # prompt chunks on the ring
    used_tokens: int = 0  # held by running rows
    reserved_tokens: int = 0  # held by running rows, or soon needed by them
    parked_tokens: int = 0  # of finished answers, kept until the memory is needed

    @property
    def running(self) -> tuple[BatchRow, ...]:
        return tuple(row for row in self.rows if row.state != "waiting")

    @property
    def queue(self) -> tuple[BatchRow, ...]:
        return tuple(row for row in self.rows if row.state == "waiting")

    @property
    def in_flight(self) -> int:
        return sum(lane.in_flight for lane in self.lanes)


class Snapshot(Event, frozen=True, kw_only=True, tag="Snapshot"):
    """State after all events so far; the first event of every stream."""

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
    elsewhere: tuple[LedPlan, ...] = ()
    outdated: str = ""  # sentence: macluster was updated or removed while this node runs

    @property
    def is_working(self) -> bool:
        """Whether this Mac answers, loads, recovers, copies or pairs."""
        pairs = self.pairing is not None and self.pairing.state in ("waiting", "compare")
        copies = any(each.state != "paused" for each in self.transfers)
        recovers = self.recovery is not None and self.recovery.state != "parked"
        return self.is_answering or recovers or copies or pairs or self.plan_status == "loading"

    def name_of(self, device_id: str) -> str:
        return next((peer.name for peer in self.peers if peer.device_id == device_id), device_id[:8])

    @property
    def served(self) -> LedPlan | None:
        """The plan of another Mac that this Mac holds layers of."""
        return next((each for each in self.elsewhere if each.plan), None)

    @property
    def host(self) -> LedPlan | None:
        """The plan of another Mac that this Mac's chat uses; None while this Mac leads one that can run."""
        leads = self.recovery is not None or (self.plan is not None and self.plan_status != "broken")
        return None if leads or not self.elsewhere else self.elsewhere[0]

    @property
    def used_plan(self) -> Plan | None:
        """The plan to show: this Mac's own, else the one that it serves."""
        return self.host.plan if self.host else self.plan

    @property
    def chat_status(self) -> PlanStatus:
        """Whether this Mac's chat can ask: the status of its own plan, else of its host's."""
        if self.host is None:
            return self.plan_status
        return self.host.status if self.host.takes_relayed else "none"

    @property
    def chat_model(self) -> str:
        """The model that this Mac's chat asks; "" for none."""
        return self.host.model if self.host else self.plan.model if self.plan else ""

    @property
    def chat_context(self) -> int:
        """Its context in tokens; 0 without one."""
        return self.host.context if self.host else self.plan.context if self.plan else 0

    @property
    def is_answering(self) -> bool:
        """Whether this Mac takes part in an answer, of any Mac's plan."""
        return bool(self.running or (self.served and self.served.answers))


_MacEvent = PeerSeen | PeerChanged | PeerGone | TrustChanged | PairingChanged
_PlanEvent = PlanProposed | PlanLoaded | PlanFailed | PlanUnloaded | PlanAdvice | StageState | HopSample | Recovery
_AnswerEvent = RequestStarted | TokenEvent | PromptLogprobs | RequestDone | Batch
_ApiEvent = ApiServed | ApiStopped | ApiClients
_NodeEvent = Progress | ModelsChanged | Transfer | LogLine | Counters | Elsewhere | InstallationChanged
AnyEvent = Snapshot | _MacEvent | _PlanEvent | _AnswerEvent | _ApiEvent | _NodeEvent

SPEED_TEST = "speed test"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


def encode_event(event: AnyEvent) -> bytes:
    return _encoder.encode(event)


def decode_event(line: bytes | str) -> AnyEvent:
    """Decode one line of JSON. Raises msgspec.ValidationError."""
    event: AnyEvent = _decoder.decode(line)
    return event
