"""Which models there are, how one could run over the Macs, and how it is to: commands and what they answer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.errors import Problem
from core.events import BalanceChoice, ParallelismChoice, Plan, RecoveryChoice, Topology, WireType
from core.numbers import Positive
from core.requests.body import Body, PathName
from core.settings import DEFAULT_CONTEXT, DEFAULT_ROWS, MAX_LANE_ROWS


class PlanRequest(Body, frozen=True, kw_only=True):
    """Which model to plan. `model` is a name from the catalog or a directory; `context` counts tokens; `kv_bits` keeps
    keys and values in this many bits instead of the model's own; `rows` requests run at the same time at most.
    `layers` says who owns which, as `core.plan.topology` reads it: this Mac's first, then the other Macs', the largest
    budgets first; without it they are divided by budget. Without a `topology` it is the one that `layers` make, else
    private, or single where there is one Mac. `without`: device ids of Macs that are to hold no layers.
    `mirror`: the head keeps what all Macs hold of the conversation, for the case that one of them is lost.
    `parallelism`: each Mac has a part of every layer (tp), or layers of its own (pp), or one Mac all (single), or what
    `core.plan.strategy` decides (auto); without it nothing is decided. `rdma`: parts are added up over RDMA, which is
    not encrypted on the cable. `balance`: layers are divided by memory, by measured speed within it, or as
    `core.plan.balance_by_speed` finds worth it (auto). `wire`: as what hidden states travel, in place of
    as they are computed.
    `draft`: a smaller model on this Mac, by name or directory, that guesses what follows where one person asks.
    `prefill`: the device id of a Mac without layers that reads long prompts where that is quicker; "auto": of one that
    is known to be quicker by what was measured, "off": of none.
    """

    model: PathName
    context: Positive = DEFAULT_CONTEXT
    kv_bits: Literal[4, 8] | None = None
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANE_ROWS)] = DEFAULT_ROWS
    topology: Topology | None = None
    layers: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=16)], ...], msgspec.Meta(max_length=64)] = ()
    without: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(max_length=64)] = ()
    mirror: bool = False
    parallelism: ParallelismChoice | None = None
    rdma: bool = False
    balance: BalanceChoice = "memory"
    wire: WireType | None = None
    draft: PathName | None = None
    prefill: Annotated[str, msgspec.Meta(max_length=26)] = "off"


class PreviewRequest(PlanRequest, frozen=True, kw_only=True):
    """What a load would do; with `parts` also which bytes of which files every Mac would read."""

    parts: bool = False


class LoadRequest(PlanRequest, frozen=True, kw_only=True):
    """Which model to load over the paired Macs; `verify` compares the ring's logits with the head's own whole model."""

    verify: bool = False


class RecoveryOrder(Body, frozen=True, kw_only=True):
    """What the person wants of a plan that lost a Mac: go on without it now, wait until it is back, end the answers
    and keep them to be continued, or end them with what they have.
    """

    choice: RecoveryChoice


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
    ranges. `layers_on`: the same of each Mac that has only a part. `asked`: how what is loaded was asked for.

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
    asked: LoadRequest | None = None
    offer: HubOffer | None = None
    preview: PlanPreview
