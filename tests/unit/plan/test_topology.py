"""Layers as a person assigns them become a ring; the cases on 43 layers are those of ds4's own tests."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DoesNotFit, IllegalCut, MaclusterError, NoPeers, PlanError, UsageError
from core.events import Plan, Topology, WireType
from core.plan.hop_bytes import TOKEN_BYTES, hop_bytes
from core.plan.notes import EVERY_MAC_SEES, sees
from core.plan.topology import LayerSpan, in_ring, is_ring, parse_span, route
from core.settings import GB
from tests.support.planning import peer, planned, profile

LAYERS = 43  # of DeepSeek V4 Flash


def routed(spans: str, layers: int = LAYERS) -> tuple[Topology, list[tuple[int, int, int]], int]:
    """Topology, (Mac, start, stop) in the order of the ring, and the Mac with the output."""
    head, *others = (parse_span(span) for span in spans.split(","))
    topology, ring, output = route(head, others, layers)
    return topology, [(mac, part.start, part.stop) for mac, part in ring], output


@pytest.mark.parametrize(
    ("spans", "topology", "ring", "output"),
    [
        pytest.param("0:19,20:output", "forward", [(0, 0, 20), (1, 20, 43)], 1, id="forward"),
        pytest.param("20:output,0:19", "reverse", [(0, 20, 43), (1, 0, 20)], 0, id="reverse"),
        pytest.param("0:19,20:42", "private", [(0, 0, 20), (1, 20, 43)], 0, id="private"),
        pytest.param("0:output", "single", [(0, 0, 43)], 0, id="single"),
        pytest.param("0:42", "single", [(0, 0, 43)], 0, id="single-by-numbers"),
        pytest.param("0:9,20:output,10:19", "forward", [(0, 0, 10), (2, 10, 20), (1, 20, 43)], 1, id="forward-3"),
        pytest.param("30:output,10:29,0:9", "reverse", [(0, 30, 43), (2, 0, 10), (1, 10, 30)], 0, id="reverse-3"),
        pytest.param("0:0,2:2,1:1,3:42", "private", [(0, 0, 1), (2, 1, 2), (1, 2, 3), (3, 3, 43)], 0, id="private-4"),
        pytest.param("42:output,0:41", "reverse", [(0, 42, 43), (1, 0, 42)], 0, id="reverse-one-layer"),
    ],
)
def test_the_spans_make_a_topology(
    spans: str, topology: Topology, ring: list[tuple[int, int, int]], output: int
) -> None:
    assert routed(spans) == (topology, ring, output)


@pytest.mark.parametrize(
    ("spans", "said", "cure"),
    [
        pytest.param("20:42,0:19", "the last layers, 20:42, without the output", "Write 20:output", id="no-output"),
        pytest.param("5:10,0:4", "from the middle only: 5:10", "0:10, or the last ones, 5:output", id="middle"),
        pytest.param("0:18,20:output", "No Mac has layer 19.", "one of the Macs", id="gap"),
        pytest.param("0:9,20:output", "No Mac has layers 10 to 19.", "one of the Macs", id="wide-gap"),
        pytest.param("20:output,0:18", "No Mac has layer 19.", "one of the Macs", id="reverse-gap"),
        pytest.param("20:output,1:19", "No Mac has layer 0.", "one of the Macs", id="reverse-without-0"),
        pytest.param("20:output", "No Mac has layers 0 to 19.", "one of the Macs", id="reverse-alone"),
        pytest.param("0:19", "No Mac has layers 20 to 42.", "one of the Macs", id="forward-alone"),
        pytest.param("0:19,20:41", "No Mac has layer 42.", "one of the Macs", id="no-end"),
        pytest.param(
            "0:19,19:output", "Layer 19 is assigned twice: in 0:19 and in 19:output.", "one Mac", id="overlap"
        ),
        pytest.param(
            "20:output,0:20", "Layer 20 is assigned twice: in 0:20 and in 20:output.", "one Mac", id="beyond-k"
        ),
        pytest.param("0:output,20:output", "Layer 20 is assigned twice", "one Mac", id="two-outputs"),
        pytest.param("0:output,20:42", "Layer 20 is assigned twice", "one Mac", id="single-and-more"),
        pytest.param("0:19,20:43", "20:43 goes beyond the model: its 43 layers are 0 to 42.", "20:output", id="beyond"),
        pytest.param("0:42,43:output", "43:output goes beyond the model", "42:output", id="begins-beyond"),
    ],
)
def test_spans_that_make_no_ring_are_refused_with_what_to_do(spans: str, said: str, cure: str) -> None:
    with pytest.raises(UsageError) as refused:
        routed(spans)
    assert said in refused.value.what
    assert cure in refused.value.fix


@pytest.mark.parametrize("text", ["", "5", ":", "5:", ":5", "-1:5", "0:5:9", "a:b", "0:Output", "0: 5", "٠:٥", "0:5\n"])
def test_what_is_no_span_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not a layer range") as refused:
        parse_span(text)
    assert "20:output" in refused.value.fix


def test_a_span_that_ends_before_it_begins_is_told_the_other_way_round() -> None:
    assert (parse_span("7:7"), parse_span("0:output")) == (LayerSpan(7, 7), LayerSpan(0, None))
    with pytest.raises(UsageError, match="9:4 ends before it begins") as refused:
        parse_span("9:4")
    assert "4:9" in refused.value.fix


@st.composite
def given_out(draw: st.DrawFn) -> tuple[int, Topology, list[LayerSpan]]:
    """A model's layers over one to four Macs, as `topology` has them: the head's first, the others' in any order."""
    layers = draw(st.integers(4, 60))
    cuts = sorted(draw(st.sets(st.integers(1, layers - 1), max_size=3)))
    spans = [LayerSpan(start, stop - 1) for start, stop in pairwise((0, *cuts, layers))]
    topology: Topology = draw(st.sampled_from(["private", "forward", "reverse"])) if cuts else "single"
    if topology != "private":
        spans[-1] = LayerSpan(spans[-1].first, None)
    head = spans.pop(-1 if topology == "reverse" else 0)
    return layers, topology, [head, *draw(st.permutations(spans))]


@given(given_out())
def test_what_covers_the_model_routes_to_a_ring_that_owns_each_layer_once(
    case: tuple[int, Topology, list[LayerSpan]],
) -> None:
    layers, topology, (head, *others) = case
    found = route(head, others, layers)
    macs = [mac for mac, _ in found.ring]
    assert found.topology == topology
    assert (macs[0], sorted(macs)) == (0, list(range(len(macs))))
    assert sorted(layer for _, part in found.ring for layer in part) == list(range(layers))
    rest = [part for _, part in found.ring[1:]]
    assert rest == sorted(rest, key=lambda part: part.start)
    assert found.output == (macs[-1] if topology == "forward" else 0)
    assert is_ring(plan_of(found.ring, topology, found.output, layers))


@given(given_out(), st.data())
def test_every_hole_is_named(case: tuple[int, Topology, list[LayerSpan]], data: st.DataObject) -> None:
    layers, _, (head, *others) = case
    if not others:
        return
    lost = others.pop(data.draw(st.integers(0, len(others) - 1)))
    last = layers - 1 if lost.last is None else lost.last
    hole = f"layer {last}." if lost.first == last else f"layers {lost.first} to {last}."
    with pytest.raises(UsageError, match=f"No Mac has {hole}"):
        route(head, others, layers)


def plan_of(ring: tuple[tuple[int, range], ...], topology: Topology, output: int, layers: int) -> Plan:
    plan = planned([peer("a", 100)], profile(layers=10))
    stages = tuple(
        msgspec.structs.replace(plan.head, device_id=str(mac), start=part.start, stop=part.stop) for mac, part in ring
    )
    change = msgspec.structs.replace
    return change(plan, stages=stages, topology=topology, output=str(output), layers=layers)


@pytest.mark.parametrize("output", [0, 1, 2])
@pytest.mark.parametrize("topology", ["private", "forward", "reverse", "single"])
@pytest.mark.parametrize("order", ["012", "120", "201", "021", "102", "210"])
def test_only_rings_of_the_topologies_with_owners_count(order: str, topology: Topology, output: int) -> None:
    """`order[i]` is the place of the layers of the Mac at position i of the ring."""
    thirds = [range(0, 2), range(2, 5), range(5, 6)]
    ring = tuple((mac, thirds[int(place)]) for mac, place in enumerate(order))
    ours = {("012", "private", 0), ("012", "forward", 2), ("201", "reverse", 0)}
    assert is_ring(plan_of(ring, topology, output, 6)) == ((order, topology, output) in ours)


def test_macs_that_make_no_ring_of_ours_have_no_topology() -> None:
    assert in_ring([range(2, 4), range(2), range(4, 6)], 0) is None
    assert in_ring([range(2), range(2, 4), range(4, 6)], 1) is None


MACS = [peer("a", 24), peer("b", 12), peer("c", 12)]
LEAST: dict[WireType, int] = {"float32": 200, "bfloat16": 50, "int8": 25}
WIRE_BYTES = {wire: tuple(range(least, least + 10)) for wire, least in LEAST.items()}
ANYWHERE = profile(*range(1, 10), boundary_bytes=tuple(range(100, 110)), wire_bytes=WIRE_BYTES)


@pytest.mark.parametrize(
    ("topology", "stages", "hops", "notes"),
    [
        ("private", [("a", 0, 5, 10), ("b", 5, 8, 3), ("c", 8, 10, 2)], (104, 107, 109), ()),
        (
            "forward",
            [("a", 0, 5, 7), ("b", 5, 8, 3), ("c", 8, 10, 5)],
            (104, 107, TOKEN_BYTES),
            ("c sees token ids and logits: it has the output.",),
        ),
        (
            "reverse",
            [("a", 5, 10, 8), ("b", 0, 3, 5), ("c", 3, 5, 2)],
            (TOKEN_BYTES, 102, 104),
            ("b sees token ids: it has the embedding.",),
        ),
        ("single", [("a", 0, 10, 15)], (), ()),
    ],
)
def test_a_split_by_budget_in_each_topology(
    topology: Topology, stages: list[tuple[str, int, int, int]], hops: tuple[int, ...], notes: tuple[str, ...]
) -> None:
    plan = planned(MACS, ANYWHERE, topology=topology)
    assert [(s.peer, s.start, s.stop, s.weight_bytes // GB) for s in plan.stages] == stages
    assert (plan.topology, plan.notes, is_ring(plan)) == (topology, notes, True)
    assert plan.output == ("ccc" if topology == "forward" else "aaa")
    assert hop_bytes(plan, ANYWHERE) == hops
    for wire, least in LEAST.items():
        packed = tuple(size if size == TOKEN_BYTES else size - 100 + least for size in hops)
        assert hop_bytes(msgspec.structs.replace(plan, wire=wire), ANYWHERE) == packed
    given = {s.peer: f"{s.start}:{s.stop - 1}" for s in plan.stages}
    if topology in ("forward", "reverse"):
        owner = "c" if topology == "forward" else "a"
        given[owner] = given[owner].split(":")[0] + ":output"
    again = planned(MACS, ANYWHERE, layers=[given[name] for name in "abc" if name in given])
    assert again == plan, "what a plan says can be written down"


def test_what_each_mac_sees_is_what_its_stage_does() -> None:
    seen = {
        topology: [sees(planned(MACS, ANYWHERE, topology=topology), device_id) for device_id in ("aaa", "bbb", "ccc")]
        for topology in ("private", "forward", "reverse", "single")
    }
    assert seen == {
        "private": ["token ids, logits", "hidden states of layers 5–7", "hidden states of layers 8–9"],
        "forward": ["token ids", "hidden states of layers 5–7", "token ids, logits"],
        "reverse": ["token ids, logits", "token ids", "hidden states of layers 3–4"],
        "single": ["token ids, logits", "", ""],
    }


def test_a_family_that_shows_tokens_on_every_mac_says_so_in_every_ring() -> None:
    telling = profile(*range(1, 10), reveals_tokens=True)
    for topology in ("private", "forward", "reverse"):
        assert EVERY_MAC_SEES in planned(MACS, telling, topology=topology).notes
    assert planned(MACS, telling, topology="single").notes == ()


def test_cuts_move_in_a_reverse_ring_to_where_the_output_fits_on_the_head() -> None:
    # with the output a has room for two layers and their cache, not for five
    macs = [peer("a", 7), peer("b", 11)]
    plan = planned(macs, profile(5, 8), topology="reverse")
    assert [(s.peer, s.start, s.stop) for s in plan.stages] == [("a", 8, 10), ("b", 0, 8)]
    assert plan.notes[0].startswith("a starts at layer 8 instead of 6")


@pytest.mark.parametrize(
    ("macs", "wish", "error", "said"),
    [
        pytest.param(1, {"topology": "forward"}, PlanError, "forward: it takes a second Mac", id="alone"),
        pytest.param(1, {"topology": "private"}, PlanError, "private: it takes a second Mac", id="alone-private"),
        pytest.param(0, {"topology": "single"}, NoPeers, "no Mac", id="nobody"),
        pytest.param(2, {"layers": ("0:4", "5:output"), "topology": "private"}, UsageError, "forward, not", id="both"),
        pytest.param(
            1, {"layers": ("0:4", "5:9")}, UsageError, "to 2 Macs, but only 1 is available", id="one-too-many"
        ),
        pytest.param(2, {"layers": ("0:3", "4:6", "7:9")}, UsageError, "but only 2 are available", id="too-many"),
        pytest.param(2, {"layers": ("0:5", "6:9")}, IllegalCut, "before layer 6: layers 6 to 7 share", id="cut"),
        pytest.param(2, {"layers": ("0:8", "9:9"), "topology": "private"}, IllegalCut, "before layer 9", id="last-cut"),
        pytest.param(1, {"layers": ("0:output",)}, DoesNotFit, "GB more on a", id="too-big"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(
    macs: int, wish: dict[str, object], error: type[MaclusterError], said: str
) -> None:
    with pytest.raises(error, match=said) as refused:
        planned([peer("a", 12), peer("b", 12)][:macs], profile(5, 8), **wish)
    assert refused.value.fix


def test_an_illegal_cut_is_told_where_the_legal_ones_are() -> None:
    with pytest.raises(IllegalCut) as refused:
        planned(MACS, profile(1, 2, 3, 8), layers=("0:4", "5:9"))
    assert refused.value.fix == "It can be cut before layers 1–3, 8 only."
    with pytest.raises(IllegalCut, match="cannot be split, because it is one") as refused:
        planned(MACS, profile(unsplittable="it is one"), layers=("0:4", "5:9"))
    assert "0:output" in refused.value.fix
    with pytest.raises(PlanError, match="cannot be split, because it is one") as unsplit:
        planned(MACS, profile(unsplittable="it is one"), topology="reverse")
    assert unsplit.value.fix == "Choose the topology single."


def test_macs_to_which_no_layers_are_given_have_none() -> None:
    plan = planned(MACS, ANYWHERE, layers=("0:5", "6:9"))
    assert [s.peer for s in plan.stages] == ["a", "b"]
    assert plan.notes == ()
