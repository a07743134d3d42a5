"""List models, preview plans, load and recover: requests and responses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.errors import Problem
from core.events import BalanceChoice, ParallelismChoice, Plan, RecoveryChoice, Topology, WireType
from core.numbers import Positive
from core.requests.body import Body, PathName
from core.settings import DEFAULT_ROWS, MAX_LANE_ROWS


class PlanRequest(Body, frozen=True, kw_only=True):
    """The model to plan, and how it should run."""

    model: PathName  # name from the catalogue, or a directory
    context: Positive | None = None  # tokens, shared by all rows; None: chosen by memory
    kv_bits: Literal[4, 8] | None = None  # bits of a key or value; None: the model's own
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_LANE_ROWS)] = DEFAULT_ROWS  # requests that run at the same time
    topology: Topology | None = None  # None: from `layers`, else private, or single on one Mac
    # spans as `core.plan.topology` parses them: this Mac's, then the others' by budget; empty: automatic
    layers: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=16)], ...], msgspec.Meta(max_length=64)] = ()
    # device ids of Macs that get no layers
    without: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(max_length=64)] = ()
    mirror: bool = False  # copy all Macs' caches to the head, in case one drops out
    # tp: split every layer; pp: split by layers; auto: see `core.plan.strategy`
    parallelism: ParallelismChoice | None = None
    rdma: bool = False  # reduce over RDMA, which is not encrypted on the cable
    # divide layers by memory, or by measured speed; auto: see `core.plan.balance_by_speed`
    balance: BalanceChoice = "memory"
    wire: WireType | None = None  # dtype of hidden states between Macs; None: as computed
    draft: PathName | None = None  # smaller model on this Mac for speculative decoding, name or directory
    # Mac for long prompts: a device id, "auto" (if measured to be faster) or "off"
    prefill: Annotated[str, msgspec.Meta(max_length=26)] = "off"


class PreviewRequest(PlanRequest, frozen=True, kw_only=True):
    """Preview a load."""

    parts: bool = False  # also list the bytes that each Mac would read


class LoadRequest(PlanRequest, frozen=True, kw_only=True):
    """Load a model over the paired Macs."""

    verify: bool = False  # compare the ring's logits with the whole model on the head
    take_over: bool = False  # although this Mac serves another Mac's plan, whose answers end


class RecoveryOrder(Body, frozen=True, kw_only=True):
    """The user's decision about a plan that lost a Mac: continue without it, wait, save the answers, or stop them."""

    choice: RecoveryChoice


class Forecast(Body, frozen=True, kw_only=True):
    """Expected speed of a plan for one request, before it runs."""

    stages_s: tuple[float, ...]  # compute time of each stage per token, in ring order
    hops_s: tuple[float, ...]  # time of each hop per token, in ring order; empty on one Mac
    prompt_s: float | None  # prefill of 1,000 tokens; None: unknown
    load_s: float  # with all weights on disk
    measured: bool  # from past answers on these Macs; False: partly estimated from the chips' names
    reduces_s: float | None = None  # reduce time per token of ranks, which compute in parallel; None: stages take turns
    # the head alone; None if the model doesn't fit there, or runs there already
    alone_tokens_per_s: float | None = None
    advice: str = ""  # sentence to show before splitting, "" if none

    @property
    def token_s(self) -> float:
        computed = sum(self.stages_s) if self.reduces_s is None else max(self.stages_s) + self.reduces_s
        return computed + sum(self.hops_s)

    @property
    def tokens_per_s(self) -> float:
        return 1 / self.token_s


class StageDisk(Body, frozen=True, kw_only=True):
    """Layers of the model on a Mac's disk."""

    layers: tuple[tuple[int, int], ...] | None  # complete layers, half-open ranges; None: unknown
    bytes_per_s: float = 0.0  # speed of the last copy; 0: none yet


class PlanPreview(Body, frozen=True, kw_only=True):
    """A plan (`plan`), or the reason for none (`problem`). Tuples are in ring order, sizes of the whole model."""

    plan: Plan | None = None
    draft: Plan | None = None  # a split that doesn't fit, if one can be made
    problem: Problem | None = None
    cuts: tuple[int, ...] | None = None  # layers before which the model can be cut; None: not examined yet
    # (file name, first byte, end byte) of each stage, if requested
    parts: tuple[tuple[tuple[str, int, int], ...], ...] = ()
    hop_bytes: tuple[int, ...] = ()  # sent by each stage per token and row; empty: nothing, or unknown
    forecast: Forecast | None = None  # of `plan`, else of `draft`
    sees: tuple[str, ...] = ()  # what each Mac can read, in words
    missing_on: tuple[str, ...] = ()  # device ids of Macs that lack layers; loading copies them first
    missing_bytes: int = 0  # approximate size of that copy
    disks: tuple[StageDisk, ...] = ()
    whole_kv: str = ""  # why the cache can't be compressed, as the end of a sentence; "" if it can
    layer_bytes: int = 0  # largest layer
    total_bytes: int = 0
    kv_bytes: int = 0  # caches of the whole context


class HubOffer(Body, frozen=True, kw_only=True):
    """Where to download a model."""

    repo: str
    revision: str  # commit or branch
    licence: str  # the hub's name for it, or ""
    listed_on: str  # ISO date of the catalogue
    text_only: bool = False  # its part for images isn't used


class ModelChoice(Body, frozen=True, kw_only=True):
    """A model on a Mac's disk or the hub, and how it fits. Layers are half-open ranges; empty if it can't be used."""

    name: str
    path: str  # "" if nothing of it is on this Mac
    model_type: str = ""  # "" and 0 for one that can't be read
    layers: int = 0
    total_bytes: int = 0
    quantization: str = ""  # "4-bit", "8-bit", … or the dtype
    context_max: int = 0
    fingerprint: str = ""
    held_by: tuple[str, ...] = ()  # device ids of Macs that have all of it
    layers_here: tuple[tuple[int, int], ...] = ()  # on this Mac, if it has only a part
    # (device id, layers) of other Macs that have only a part
    layers_on: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    loaded: bool = False
    led_by: str = ""  # name of another Mac that has loaded it
    asked: LoadRequest | None = None  # the request that loaded it
    offer: HubOffer | None = None  # if no Mac has any of it
    preview: PlanPreview
