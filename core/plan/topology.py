"""Layers as users assign them, and the ring that they make.

A span is `A:B`, layers A to B inclusive, or `A:output`, from layer A to the end with norm and output head, as in ds4.
The head's span decides: `0:B` makes a forward ring if another Mac has the output, else a private one; `A:output` makes
a reverse one. The rules are those of ds4's distributed mode, except `private`, which ds4 lacks.

`TOPOLOGIES` defines each topology: a new one is a new row (and a name in `core.events`). What each Mac does follows
from its layers and the output: see `core.plan.stage_roles`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from core.errors import UsageError
from core.events import Plan, Topology

_SPAN: Final = re.compile(r"([0-9]{1,6}):([0-9]{1,6}|output)")
_WRITE_IT: Final = "Write it as 0:19, both layers included, or as 20:output."


class Arrangement(NamedTuple):
    """Properties of a topology."""

    meaning: str  # for users
    several: bool = True  # needs several Macs
    head_is_last: bool = False  # the head has the last layers, else the first
    last_outputs: bool = False  # the output is with the last layers, else on the head
    ranks: bool = False  # every Mac has a part of each layer

    def head(self, macs: int) -> int:
        return macs - 1 if self.head_is_last else 0

    def output(self, macs: int) -> int:
        return macs - 1 if self.last_outputs else self.head(macs)


TOPOLOGIES: Final[dict[Topology, Arrangement]] = {
    "private": Arrangement("This Mac has the embedding and the output: no token id or logit leaves it."),
    "forward": Arrangement(
        "This Mac has the embedding; the last Mac of the ring has the output and chooses tokens.", last_outputs=True
    ),
    "reverse": Arrangement(
        "Another Mac has the embedding; this Mac has the last layers and the output.", head_is_last=True
    ),
    "single": Arrangement("This Mac does everything; nothing leaves it.", several=False),
    "tensor": Arrangement(
        "Every Mac has a part of every layer and reads the text. They sum their parts twice per layer, which needs a "
        "fast cable.",
        ranks=True,
    ),
}

DEFAULT_TOPOLOGY: Final[Topology] = "private"
LONE_MAC_TOPOLOGY: Final = next(name for name, row in TOPOLOGIES.items() if not row.several)
TOPOLOGY_OF_RANKS: Final = next(name for name, row in TOPOLOGIES.items() if row.ranks)


class LayerSpan(NamedTuple):
    """Layers `first` to `last` inclusive; `last` None: to the end, with norm and output head."""

    first: int
    last: int | None

    def __str__(self) -> str:
        return f"{self.first}:{'output' if self.last is None else self.last}"


class Route(NamedTuple):
    """Macs and their layers in ring order. Macs are numbers, the head is 0."""

    topology: Topology
    ring: tuple[tuple[int, range], ...]
    output: int  # Mac with the output head


def parse_span(text: str) -> LayerSpan:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise UsageError(f"{text[:32]!r} is not a layer range.", _WRITE_IT)
    first, last = int(found[1]), None if found[2] == "output" else int(found[2])
    if last is not None and last < first:
        raise UsageError(f"{text} ends before it begins.", f"Write the lower layer first: {last}:{first}.")
    return LayerSpan(first, last)


def route(head: LayerSpan, others: Sequence[LayerSpan], layers: int) -> Route:
    """The ring over a model; `others[i]` is the span of Mac i + 1.

    Raises UsageError for layers that don't exist, have two owners or none, and for a head with neither the first layers
    nor the last ones with the output.
    """
    spans = (head, *others)
    for span in spans:
        _check_within(span, layers)
    if head.first > 0 and head.last is not None:
        raise _headless(head, layers)
    _check_once(sorted(spans, key=lambda span: span.first), layers)
    parts = [range(span.first, _stop(span, layers)) for span in spans]
    made = in_ring(parts, next((mac for mac, span in enumerate(spans) if span.last is None), 0))
    assert made is not None
    return made


def in_ring(parts: Sequence[range], output: int) -> Route | None:
    """The ring of Macs where Mac i owns `parts[i]`, the head first, then layer order; None if unknown."""
    ring = tuple(sorted(enumerate(parts), key=lambda owner: (owner[0] != 0, owner[1].start)))
    topology = _topology(parts, output)
    return topology and Route(topology, ring, output)


def has_ranks(plan: Plan) -> bool:
    return TOPOLOGIES[plan.topology].ranks


def stages_in_turn(plan: Plan) -> int:
    """Number of stages that compute one after the other for a token: ranks all compute at the same time."""
    return 1 if has_ranks(plan) else len(plan.stages)


def is_ring(plan: Plan) -> bool:
    """Whether `plan` is a ring as `in_ring` makes it, of its own topology, with ranks only if that was decided."""
    macs = [stage.device_id for stage in plan.stages]
    decided = plan.parallelism is not None and plan.parallelism.strategy == "tp"
    if plan.output not in macs or not _is_covered(plan) or decided != has_ranks(plan):
        return False
    parts, output = [range(s.start, s.stop) for s in plan.stages], macs.index(plan.output)
    return in_ring(parts, output) == Route(plan.topology, tuple(enumerate(parts)), output)


def _is_covered(plan: Plan) -> bool:
    if has_ranks(plan):
        return plan.layers > 0 and {(s.start, s.stop) for s in plan.stages} == {(0, plan.layers)}
    # the plan of a prefill Mac has two stages, the head's without layers
    owners = [stage for stage in plan.owners if stage is not plan.head or stage.start < plan.layers]
    edges = [0, *(stage.stop for stage in owners)]
    rising = all(start < stop for start, stop in pairwise(edges)) and edges[-1] == plan.layers
    return rising and [s.start for s in owners] == edges[:-1]


def _topology(parts: Sequence[range], output: int) -> Topology | None:
    macs = sorted(range(len(parts)), key=lambda mac: parts[mac].start)
    ends = (macs.index(0), macs.index(output))
    several = len(macs) > 1
    fits = (
        name
        for name, row in TOPOLOGIES.items()
        if (row.several, row.ranks) == (several, several and len(set(parts)) == 1)
        and ends == (row.head(len(macs)), row.output(len(macs)))
    )
    return next(fits, None)


def _check_within(span: LayerSpan, layers: int) -> None:
    if max(span.first, span.last or 0) >= layers:
        what = f"{span} goes beyond the model: its {layers} layers are 0 to {layers - 1}."
        raise UsageError(what, f"Write {min(span.first, layers - 1)}:output for all layers to the end.")


def _headless(head: LayerSpan, layers: int) -> UsageError:
    if head.last == layers - 1:
        what = f"This Mac would have the last layers, {head}, without the output."
        return UsageError(what, f"Write {head.first}:output: then it has the norm and the output head, too.")
    what = f"This Mac would have layers from the middle only: {head}."
    return UsageError(what, f"Give it the first layers, 0:{head.last}, or the last ones, {head.first}:output.")


def _check_once(spans: Sequence[LayerSpan], layers: int) -> None:
    edge = 0
    for before, span in pairwise((None, *spans)):
        assert span is not None
        if span.first < edge:
            raise UsageError(
                f"Layer {span.first} is assigned twice: in {before} and in {span}.", "Assign it to one Mac."
            )
        if span.first > edge:
            raise _unowned(range(edge, span.first))
        edge = _stop(span, layers)
    if edge < layers:
        raise _unowned(range(edge, layers))


def _unowned(hole: range) -> UsageError:
    if len(hole) == 1:
        return UsageError(f"No Mac has layer {hole[0]}.", "Assign it to one of the Macs.")
    return UsageError(f"No Mac has layers {hole[0]} to {hole[-1]}.", "Assign them to one of the Macs.")


def _stop(span: LayerSpan, layers: int) -> int:
    return layers if span.last is None else span.last + 1
