"""How a model is to be loaded, step by step: context, topology, bits of keys and values. Pure."""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from core.errors import UsageError
from core.events import BalanceChoice, ParallelismChoice, Topology, WireType
from core.requests.disks import DownloadRequest
from core.requests.plans import LoadRequest, ModelChoice, PlanRequest, PreviewRequest
from core.settings import DEFAULT_CONTEXT, KV_BITS
from core.text import clean_text
from tui.state.format import context_length, plural

TOPOLOGIES: Final[tuple[Topology, ...]] = get_args(Topology)
_SHORTEST: Final = 2048
_DIVIDED: Final[dict[BalanceChoice, str]] = {
    "speed": "layers by speed",
    "auto": "layers by speed where that is clearly faster",
}


def default_options(choice: ModelChoice) -> LoadRequest:
    """As the node plans a model of which nothing was asked for."""
    return LoadRequest(model=choice.name, context=min(DEFAULT_CONTEXT, choice.context_max or DEFAULT_CONTEXT))


def as_preview(request: PlanRequest) -> PreviewRequest:
    """The question what loading so would do."""
    return PreviewRequest(**{field: getattr(request, field) for field in PlanRequest.__struct_fields__})


def contexts(choice: ModelChoice) -> tuple[int, ...]:
    """Lengths of context to choose from, in tokens: doubled from 2048 on, and the longest that the model takes."""
    longest = choice.context_max or DEFAULT_CONTEXT
    steps: list[int] = []
    while _SHORTEST << len(steps) < longest:
        steps.append(_SHORTEST << len(steps))
    return (*steps, longest)


def with_context(request: LoadRequest, choice: ModelChoice, step: int) -> LoadRequest:
    """The next longer context (`step` 1) or the next shorter one (-1); the last one stays."""
    longer = [c for c in contexts(choice) if c > request.context]
    shorter = [c for c in contexts(choice) if c < request.context]
    found = longer[:1] if step > 0 else shorter[-1:]
    return msgspec.structs.replace(request, context=found[0] if found else request.context)


def option_words(request: PlanRequest, choice: ModelChoice) -> list[str]:
    """What was chosen of how a model is to be loaded, as words; nothing where all is as the node has it."""
    usual = default_options(choice)
    how = request.topology or request.parallelism
    return [
        *([f"context {context_length(request.context)}"] if request.context != usual.context else []),
        *([f"keys and values in {request.kv_bits} bits"] if request.kv_bits else []),
        *([f"{how} over RDMA" if request.rdma else how] if how else []),
        *([f"hidden states as {request.wire}"] if request.wire else []),
        *([_DIVIDED[request.balance]] if request.balance != usual.balance else []),
        *([plural(request.rows, "row")] if request.rows != usual.rows else []),
        *(["mirrored here"] if request.mirror else []),
        *([f"{request.draft} guesses"] if request.draft else []),
        *(["another Mac reads prompts"] if request.prefill != usual.prefill else []),
    ]


def with_bits(request: LoadRequest, choice: ModelChoice) -> LoadRequest:
    """Keys and values as the model has them, then in 8 bits, then in 4; only the first where the others cannot be."""
    steps = (None, *(() if choice.preview.whole_kv else sorted(KV_BITS, reverse=True)))
    if request.kv_bits not in steps:
        return msgspec.structs.replace(request, kv_bits=None)
    return msgspec.structs.replace(request, kv_bits=steps[(steps.index(request.kv_bits) + 1) % len(steps)])


def with_wire(request: LoadRequest) -> LoadRequest:
    """Hidden states as the model computes them, then as each of the types that they can travel as."""
    steps = (None, *get_args(WireType))
    return msgspec.structs.replace(request, wire=steps[(steps.index(request.wire) + 1) % len(steps)])


def with_balance(request: LoadRequest) -> LoadRequest:
    """Layers by memory, then by measured speed within it, then by speed where that is clearly faster."""
    steps = get_args(BalanceChoice)
    return msgspec.structs.replace(request, balance=steps[(steps.index(request.balance) + 1) % len(steps)])


def with_topology(request: LoadRequest, choice: ModelChoice) -> LoadRequest:
    """The topology after the one that was asked for last, or that is shown."""
    split = choice.preview.plan or choice.preview.draft
    last = request.topology or (split.topology if split else TOPOLOGIES[-1])
    return in_topology(request, TOPOLOGIES[(TOPOLOGIES.index(last) + 1) % len(TOPOLOGIES)])


def in_topology(request: LoadRequest, topology: Topology) -> LoadRequest:
    """In the topology that a person chose: then nothing is left to be decided. RDMA stays where there are ranks."""
    rdma = request.rdma and topology == "tensor"
    return msgspec.structs.replace(request, topology=topology, parallelism=None, rdma=rdma)


def with_parallelism(request: LoadRequest) -> LoadRequest:
    """What is best, then a part of every layer each, layers of its own each, one Mac; then as the topology has it."""
    steps = (None, *get_args(ParallelismChoice))
    choice = steps[(steps.index(request.parallelism) + 1) % len(steps)]
    rdma = request.rdma and choice in ("auto", "tp")
    return msgspec.structs.replace(request, topology=None, parallelism=choice, rdma=rdma)


def download_of(text: str, revision: str = "main", *, split: bool = False) -> DownloadRequest:
    """What a person typed, a name or the address of the hub's page, as a request. Raises UsageError."""
    repo = text.strip().removeprefix("https://huggingface.co/").rstrip("/")
    request = DownloadRequest(repo=repo, revision=revision, split=split)
    try:
        msgspec.json.decode(msgspec.json.encode(request), type=DownloadRequest)
    except msgspec.ValidationError as error:
        name = repo if revision == "main" else f"{repo} at {revision}"
        raise UsageError(
            f"{clean_text(name)!r:.80} is not a repository of the hub.",
            "Names are owner/name, such as mlx-community/Qwen3-4B-4bit.",
        ) from error
    return request
