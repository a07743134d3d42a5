"""Bodies of the commands that a node takes on its unix socket, and what it answers."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from core.answer_parts import Tool, ToolCall, ToolName
from core.constraint import Constraint
from core.errors import Problem
from core.events import (
    BalanceChoice,
    MirrorChoice,
    ParallelismChoice,
    PathKind,
    Plan,
    RecoveryChoice,
    Topology,
    WireType,
)
from core.numbers import MOST, Positive, Size, TokenId
from core.sampling_options import Option, Sampling
from core.settings import DEFAULT_CONTEXT, DEFAULT_ROWS, MAX_LANE_ROWS, MAX_ROWS

MAX_WINDOW: Final = 16
DEFAULT_MAX_TOKENS: Final = 512
MAX_PATHS: Final = 4

Name = Annotated[str, msgspec.Meta(max_length=256, pattern=r"\A[^\0]*\Z")]
PathName = Annotated[str, msgspec.Meta(max_length=4096, pattern=r"\A[^\0]*\Z")]
FindingState = Literal["ok", "warn", "bad", "unknown"]
Duration = Annotated[float, msgspec.Meta(ge=0, le=3600)]
StopTexts = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1)], ...],
    msgspec.Meta(max_length=16),
    Option("before this text; can be repeated", "Stop texts", "the answer ends before; | between two"),
]
Number = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
Fraction = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
TemplateOptions = dict[Annotated[str, msgspec.Meta(max_length=64)], bool | Number | Fraction | str | None]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of command bodies: unknown fields are refused."""


class PlanRequest(Body, frozen=True, kw_only=True):
    """Which model to plan. `model` is a name from the catalog or a directory; `context` counts tokens; `kv_bits` keeps
    keys and values in this many bits instead of the model's own; `rows` requests run at the same time at most. `chunk`
    tokens of a prompt travel together, `window` chunks are under way at most: without them, both follow the hops.
    `layers` says who owns which, as `core.plan.topology` reads it: this Mac's first, then the other Macs', the largest
    budgets first; without it they are divided by budget. Without a `topology` it is the one that `layers` make, else
    private, or single where there is one Mac. `without`: device ids of Macs that are to hold no layers.
    `mirror`: the head keeps what all Macs hold of the conversation; auto: where memory and wire allow it.
    `parallelism`: each Mac has a part of every layer (tp), or layers of its own (pp), or one Mac all (single), or what
    `core.plan.strategy` decides (auto); without it nothing is decided. `rdma`: parts are added up over RDMA, which is
    not encrypted on the cable. `balance`: layers are divided by memory, by measured speed within it, or as
    `core.plan.balance` finds worth it (auto). `spare_bytes`: once its own layers run, each Mac fetches up to so much of
    its neighbours' to its disk, to take them over where one is lost. `wire`: as what hidden states travel, in place of
    as they are computed. `replay_check`: logits are compared where something is read again behind a loss.
    `draft`: a smaller model on this Mac, by name or directory, that guesses what follows where one person asks.
    `prefill`: the device id of a Mac without layers that reads long prompts where that is quicker; "auto": of one that
    is known to be quicker by what was measured, "off": of none.
    """

    model: PathName
    context: Positive = DEFAULT_CONTEXT
    kv_bits: Literal[4, 8] | None = None
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANE_ROWS)] = DEFAULT_ROWS
    chunk: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] | None = None
    window: Annotated[int, msgspec.Meta(ge=1, le=MAX_WINDOW)] | None = None
    topology: Topology | None = None
    layers: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=16)], ...], msgspec.Meta(max_length=64)] = ()
    without: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(max_length=64)] = ()
    mirror: MirrorChoice = "off"
    parallelism: ParallelismChoice | None = None
    rdma: bool = False
    balance: BalanceChoice = "memory"
    spare_bytes: Size = 0
    wire: WireType | None = None
    replay_check: bool = False
    draft: PathName | None = None
    prefill: Annotated[str, msgspec.Meta(max_length=26)] = "off"


class PreviewRequest(PlanRequest, frozen=True, kw_only=True):
    """What a load would do; with `parts` also which bytes of which files every Mac would read."""

    parts: bool = False


class LoadRequest(PlanRequest, frozen=True, kw_only=True):
    """Which model to load over the paired Macs; `verify` compares the ring's logits with the head's own whole model."""

    verify: bool = False


class Message(Body, frozen=True, kw_only=True, omit_defaults=True):
    """One turn of a conversation. Of an assistant's also what it thought before it and the tools that it called; of a
    "tool" what the call with `tool_call_id` came to.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


class AnswerOptions(Body, frozen=True, kw_only=True):
    """An answer of at least `min_tokens` and at most `max_tokens` tokens: what a request says in each of its forms,
    from the person to the process that runs it. `prompt_logprobs`: where `sampling` tells how likely tokens were, the
    prompt's are told of, too; it is read anew then. `constraint`: what it has to look like; it ends where that does.
    """

    sampling: Sampling = Sampling()
    max_tokens: Annotated[
        Positive,
        Option("after N tokens (default %(default)s)", "Max tokens", "the answer ends after this many", short="max"),
    ] = DEFAULT_MAX_TOKENS
    min_tokens: Annotated[Size, Option("not by itself before there are N tokens")] = 0
    prompt_logprobs: bool = False
    constraint: Annotated[Constraint | None, Option(label="Shape", hint="schema FILE, regex R or grammar FILE")] = None

    @property
    def answer_options(self) -> dict[str, Any]:
        """These fields, by name, for another form of the same request."""
        return {name: getattr(self, name) for name in AnswerOptions.__struct_fields__}


class ChatRequest(AnswerOptions, frozen=True, kw_only=True):
    """One answer, which also ends before the first of the texts in `stop`, wherever the borders of its tokens lie.
    `raw` sends the last message without the chat template, which else is told of `tools` and `template_options`.
    Without `keep` nothing of it is ever on disk. `prompt_tokens`: what is read, in the place of messages.
    A program is told `one_call` at most: behind it the answer ends. Where there are tools that it `must_call`, it calls
    those and says nothing else.
    """

    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=1)]
    stop: StopTexts = ()
    raw: bool = False
    keep: bool = True
    tools: tuple[Tool, ...] = ()
    one_call: bool = False
    must_call: tuple[ToolName, ...] = ()
    template_options: TemplateOptions = {}
    prompt_tokens: tuple[TokenId, ...] = ()


class Done(Body, frozen=True, kw_only=True):
    """The answer to a command that has nothing else to say."""


class Finding(Body, frozen=True, kw_only=True):
    """One thing that the check looked at: `what` is so, and `fix` what a person can do about it, "" where nothing has
    to be done. "unknown": it cannot be found out here.
    """

    name: str
    state: FindingState
    what: str
    fix: str = ""


class SpeedRequest(Body, frozen=True, kw_only=True):
    """Which hop to test: two Macs, each by its device id, the beginning of that, or its name; without a `source` it is
    this Mac.
    """

    target: Name
    source: Name = ""


class PathFigures(Body, frozen=True, kw_only=True):
    """A network that both Macs are on: what a round trip takes, and what it carries, 0 where that is not known."""

    kind: PathKind
    rtt_s: Duration
    bytes_per_s: Size = 0


class SpeedResult(Body, frozen=True, kw_only=True):
    """What the control link between two Macs does, measured by `source` on its own clock; both are device ids.

    `rtt_s` is the median and `rtt_min_s` the least of `round_trips` empty messages, there and back; `loaded_rtt_s` the
    median of `frames` full ones, with as many under way as the link takes without a queue. Those carried `bytes` in
    `seconds`, sealed. `via`: by what `source` reaches the network, such as "Wi-Fi (en0)", "" where nothing says so.
    `paths`: every network by which `source` reaches `target`, the best kind first, and what each carries.
    `answering`: an answer of the Mac that asked was being written meanwhile.
    """

    source: str
    target: str
    rtt_s: Duration
    rtt_min_s: Duration
    round_trips: Size
    loaded_rtt_s: Duration
    frames: Size
    bytes: Size
    seconds: Duration
    via: Annotated[str, msgspec.Meta(max_length=64)] = ""
    paths: Annotated[tuple[PathFigures, ...], msgspec.Meta(max_length=MAX_PATHS)] = ()
    answering: bool = False

    @property
    def bytes_per_s(self) -> float:
        """The rate of the full messages."""
        return self.bytes / self.seconds if self.seconds > 1e-6 else 0.0


class RequestAccepted(Body, frozen=True, kw_only=True):
    """The answer to a ChatRequest."""

    request_id: str
    prompt_tokens: int


class RecoveryOrder(Body, frozen=True, kw_only=True):
    """What the person wants of a plan that lost a Mac: go on without it now, wait until it is back, end the answers
    and keep them to be continued, or end them with what they have.
    """

    choice: RecoveryChoice


class UnfinishedAnswer(Body, frozen=True, kw_only=True):
    """An answer that a crash cut off, or that was saved when its Macs were lost: `text` to `messages` are `tokens`
    tokens of at most `max_tokens`; the last one was written at `at`, seconds since the epoch.
    """

    request_id: str
    model: str
    messages: tuple[Message, ...]
    text: str
    tokens: int
    max_tokens: int
    at: float


class AnswerId(Body, frozen=True, kw_only=True):
    """Which answer; an empty id is the newest that is unfinished."""

    request_id: Name = ""


class SessionName(Body, frozen=True, kw_only=True):
    """Which saved conversation; a name has at most 32 characters."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"\A[^\0]*\Z")]


class SavedSession(Body, frozen=True, kw_only=True):
    """A conversation on disk: `tokens` of it are held, in a file of `size_bytes`, since `created_at`, seconds since the
    epoch. `messages`: its words, where they were asked for. `problem`: why it cannot be read.
    """

    name: str
    model: str = ""
    tokens: int = 0
    size_bytes: int = 0
    created_at: float = 0.0
    messages: tuple[Message, ...] = ()
    problem: Problem | None = None


class DownloadRequest(Body, frozen=True, kw_only=True):
    """A model of the hub, "owner/name", for this Mac's disk; `revision` is a branch, a tag or a commit. `split`: only
    its settings and headers, so that it can be planned; of its weights each Mac fetches what it holds in a plan.
    `bytes_per_s`: no quicker than that, 0 for as quick as it goes.
    """

    repo: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")]
    revision: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,99}\Z")] = "main"
    split: bool = False
    bytes_per_s: Size = 0


TransferChange = Literal["stop", "pause", "resume", "limit"]


class TransferOrder(Body, frozen=True, kw_only=True):
    """What is to become of what is on its way to the disks of `macs`, device ids, or to all where there are none: it
    ends, pauses, goes on, or comes no quicker than at `bytes_per_s`, 0 for as many as come. What is there is kept.
    """

    what: TransferChange
    macs: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(max_length=64)] = ()
    bytes_per_s: Size = 0


class CopyRequest(Body, frozen=True, kw_only=True):
    """Copy a model, by its fingerprint, to the disks of the paired Macs `to` (device ids; this one may be among them),
    from one that has it; or only the `parts` of its files, each (name, first byte, byte behind the last), with its
    settings. What comes from Macs comes to each no quicker than `bytes_per_s`, 0 for as quick as it goes.
    """

    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    to: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(min_length=1, max_length=64)]
    parts: tuple[tuple[Annotated[str, msgspec.Meta(max_length=255)], Size, Size], ...] = ()
    bytes_per_s: Size = 0


class DiskUse(Body, frozen=True, kw_only=True):
    """Of the loaded model, `disk_bytes` lie on the disk of the Mac `mac`, a device id; `fetched_bytes` of whichever
    models have come there since this Mac's node has started, as far as it wanted that.
    """

    mac: str
    fetched_bytes: Size = 0
    disk_bytes: Size = 0


class TrimRequest(Body, frozen=True, kw_only=True):
    """Of which `model` no plan's bytes are to be let go of on this Mac's disk, of all where there is none; without `go`
    it is only told what they are.
    """

    model: PathName = ""
    go: bool = False


class Trimmable(Body, frozen=True, kw_only=True):
    """What of a model in the folder `path` no plan needs: `nbytes` of the disk. `layers` go and `kept` stay, both as
    half-open ranges; without `kept` all goes. `only_here`: those of `layers` that no other linked Mac has, nor the hub.
    Without any layers it was begun and left.
    """

    name: str
    path: str
    nbytes: int
    layers: tuple[tuple[int, int], ...] = ()
    kept: tuple[tuple[int, int], ...] = ()
    only_here: tuple[tuple[int, int], ...] = ()


class Forecast(Body, frozen=True, kw_only=True):
    """What one request would get of a plan, in seconds, as far as can be said before it runs.

    `stages_s`: what each stage computes for one token, in ring order; `hops_s`: what each hop adds, in ring order, none
    where there is one Mac. `reduces_s`: what adding up takes for one token where each Mac has a part of every layer:
    then all compute at the same time; else (None) one after the other. `prompt_s`: reading a thousand tokens of prompt,
    None where answers were measured but no prompt that is long enough to tell, or where nothing can be guessed;
    `load_s`: loading, weights being on
    every disk. `measured`: past answers on these Macs say so; else some figure is a guess by the chip's name.
    `alone_tokens_per_s`: the head alone with the same model, None where that does not fit or the plan is that already.
    `advice`: the sentence that a person should read before splitting, "" where there is none.
    """

    stages_s: tuple[float, ...]
    hops_s: tuple[float, ...]
    prompt_s: float | None
    load_s: float
    measured: bool
    reduces_s: float | None = None
    alone_tokens_per_s: float | None = None
    advice: str = ""

    @property
    def token_s(self) -> float:
        """Seconds a token takes: for one user, all stages and all hops one after the other."""
        computed = sum(self.stages_s) if self.reduces_s is None else max(self.stages_s) + self.reduces_s
        return computed + sum(self.hops_s)

    @property
    def tokens_per_s(self) -> float:
        """The same as a rate."""
        return 1 / self.token_s


class StageDisk(Body, frozen=True, kw_only=True):
    """What a Mac of a plan has of the model on its disk: all of these `layers`, half-open ranges, None where it has not
    said. What lacks comes at about `bytes_per_s`, as quick as the last copy there was, 0 where there was none.
    """

    layers: tuple[tuple[int, int], ...] | None
    bytes_per_s: float = 0.0


class PlanPreview(Body, frozen=True, kw_only=True):
    """A plan that would run (`plan`), or why there is none (`problem`).

    `draft`: the split that does not fit, where one can be made. `cuts`: the layers before which the model may be cut;
    None where nobody has examined it yet. `hop_bytes`: what each stage sends for one token of one row, in ring order;
    empty where nothing is sent or it is not known. `parts`: for each stage, in ring order, what it reads of which file
    as (name, first byte, byte behind the last), if it was asked for. `forecast`: of `plan`, else of `draft`.
    `sees`: what each Mac of that split would see, in words, in ring order. `missing_on`: device ids of those of them
    whose disks lack layers of it; loading copies them there first, about `missing_bytes`. `disks`: what each Mac of
    that split has there, in ring order. `whole_kv`: why keys and values cannot be kept in fewer bits, as the end of a
    sentence; "" where they can, or nobody has examined it yet. The other figures are of the whole model.
    """

    plan: Plan | None = None
    draft: Plan | None = None
    problem: Problem | None = None
    cuts: tuple[int, ...] | None = None
    parts: tuple[tuple[tuple[str, int, int], ...], ...] = ()
    hop_bytes: tuple[int, ...] = ()
    forecast: Forecast | None = None
    sees: tuple[str, ...] = ()
    missing_on: tuple[str, ...] = ()
    missing_bytes: int = 0
    disks: tuple[StageDisk, ...] = ()
    whole_kv: str = ""
    layer_bytes: int = 0
    total_bytes: int = 0
    kv_bytes: int = 0


class HubOffer(Body, frozen=True, kw_only=True):
    """Where a model can be downloaded: a repository of the hub at a commit, or a branch, under a `licence`, as the hub
    calls it, "" where it says none. `listed_on`: the day of the list that says so, as ISO 8601 has it.
    """

    repo: str
    revision: str
    licence: str
    listed_on: str


class ModelChoice(Body, frozen=True, kw_only=True):
    """A model on a disk of the linked Macs, or one on `offer` of which no disk has anything, and how it fits. Sizes in
    bytes; `quantization` is "4-bit", "8-bit", ... or the dtype. `held_by`: device ids of the Macs that have all of it;
    where nothing of it is here there is no `path`, where a part of it is, `layers_here` says which layers, as half-open
    ranges. `layers_on`: the same of each Mac that has only a part.

    A model that cannot be used has no layers; its preview says why.
    """

    name: str
    path: str
    model_type: str
    layers: int
    total_bytes: int
    quantization: str
    context_max: int
    fingerprint: str = ""
    held_by: tuple[str, ...] = ()
    layers_here: tuple[tuple[int, int], ...] = ()
    layers_on: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    loaded: bool = False
    offer: HubOffer | None = None
    preview: PlanPreview
