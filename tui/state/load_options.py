"""Options for loading a model: context, topology, KV precision. Pure."""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from core.errors import UsageError
from core.events import BalanceChoice, ParallelismChoice, Topology, WireType
from core.requests.disks import DownloadRequest
from core.requests.plans import LoadRequest, ModelChoice, PlanRequest, PreviewRequest
from core.settings import DEFAULT_CONTEXT, KV_BITS
from core.text import clean_text
from tui.client import check
from tui.state.format import plural
from tui.state.plan_words import context_length

TOPOLOGIES: Final[tuple[Topology, ...]] = get_args(Topology)
_SHORTEST: Final = 2048
_DIVIDED: Final[dict[BalanceChoice, str]] = {"speed": "layers: by speed", "auto": "layers: automatic"}


def as_preview(request: PlanRequest) -> PreviewRequest:
    return PreviewRequest(**{field: getattr(request, field) for field in PlanRequest.__struct_fields__})


def contexts(choice: ModelChoice) -> tuple[int, ...]:
    """Context lengths to choose from, in tokens: doubled from 2048 up to the model's maximum."""
    longest = choice.context_max or DEFAULT_CONTEXT
    steps: list[int] = []
    while _SHORTEST << len(steps) < longest:
        steps.append(_SHORTEST << len(steps))
    return (*steps, longest)


def context_of(request: PlanRequest, choice: ModelChoice) -> int:
    """The requested context, or the planned one."""
    split = choice.preview.plan or choice.preview.draft
    return request.context or (split.context if split else DEFAULT_CONTEXT)


def with_context(request: LoadRequest, choice: ModelChoice, step: int) -> LoadRequest:
    now = context_of(request, choice)
    longer, shorter = ([c for c in contexts(choice) if c > now], [c for c in contexts(choice) if c < now])
    found = longer[:1] if step > 0 else shorter[-1:]
    return msgspec.structs.replace(request, context=found[0] if found else now)


def option_words(request: PlanRequest, choice: ModelChoice) -> list[str]:
    """The load options that differ from the defaults, in words."""
    usual = LoadRequest(model=choice.name)
    how = request.topology or request.parallelism
    return [
        *([f"context {context_length(request.context)}"] if request.context else []),
        *([f"cache: {request.kv_bits}-bit"] if request.kv_bits else []),
        *([f"{how} over RDMA" if request.rdma else how] if how else []),
        *([f"link data: {request.wire}"] if request.wire else []),
        *([_DIVIDED[request.balance]] if request.balance != usual.balance else []),
        *([plural(request.rows, "row")] if request.rows != usual.rows else []),
        *(["cache mirrored here"] if request.mirror else []),
        *([f"draft model: {request.draft}"] if request.draft else []),
        *(["prefill on another Mac"] if request.prefill != usual.prefill else []),
    ]


def with_bits(request: LoadRequest, choice: ModelChoice) -> LoadRequest:
    """The next cache precision: full, 8 bits, 4 bits; only full if the model's cache can't be compressed."""
    steps = (None, *(() if choice.preview.whole_kv else sorted(KV_BITS, reverse=True)))
    if request.kv_bits not in steps:
        return msgspec.structs.replace(request, kv_bits=None)
    return msgspec.structs.replace(request, kv_bits=steps[(steps.index(request.kv_bits) + 1) % len(steps)])


def with_wire(request: LoadRequest) -> LoadRequest:
    steps = (None, *get_args(WireType))
    return msgspec.structs.replace(request, wire=steps[(steps.index(request.wire) + 1) % len(steps)])


def with_balance(request: LoadRequest) -> LoadRequest:
    steps = get_args(BalanceChoice)
    return msgspec.structs.replace(request, balance=steps[(steps.index(request.balance) + 1) % len(steps)])


def with_topology(request: LoadRequest, choice: ModelChoice) -> LoadRequest:
    split = choice.preview.plan or choice.preview.draft
    last = request.topology or (split.topology if split else TOPOLOGIES[-1])
    return in_topology(request, TOPOLOGIES[(TOPOLOGIES.index(last) + 1) % len(TOPOLOGIES)])


def in_topology(request: LoadRequest, topology: Topology) -> LoadRequest:
    """With a fixed topology; only tensor keeps RDMA."""
    rdma = request.rdma and topology == "tensor"
    return msgspec.structs.replace(request, topology=topology, parallelism=None, rdma=rdma)


def with_parallelism(request: LoadRequest) -> LoadRequest:
    steps = (None, *get_args(ParallelismChoice))
    choice = steps[(steps.index(request.parallelism) + 1) % len(steps)]
    rdma = request.rdma and choice in ("auto", "tp")
    return msgspec.structs.replace(request, topology=None, parallelism=choice, rdma=rdma)


def download_of(text: str, revision: str = "main", *, split: bool = False) -> DownloadRequest:
    """A typed repository name or hub address as a request. Raises UsageError."""
    repo = text.strip().removeprefix("https://huggingface.co/").rstrip("/")
    request = DownloadRequest(repo=repo, revision=revision, split=split)
    try:
        check(request)
    except UsageError as error:
        name = repo if revision == "main" else f"{repo} at {revision}"
        raise UsageError(
            f"{clean_text(name)!r:.80} is not the name of a repository.",
            "Use owner/name, for example mlx-community/Qwen3-4B-4bit.",
        ) from error
    return request
