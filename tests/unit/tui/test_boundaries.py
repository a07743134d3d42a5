"""The split editor's boundaries: their spans as text, and their effect."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.pilot import Pilot
from textual.widgets import Static

from core.events import Parallelism, Peer, Plan, Snapshot, Topology
from core.plan.make_plan import draft_plan
from core.requests.plans import Forecast, PlanPreview, PlanRequest, StageDisk
from core.settings import GB
from tests.support.app import StillNode, app_with, text_of
from tests.support.planning import FLAT, REVERSE
from tui.app import MaclusterApp
from tui.screens.split import SplitScreen
from tui.state import boundaries
from tui.state.boundaries import Boundaries, spans
from tui.state.split_effects import effect
from tui.widgets.split_text import Loaded, applying_content, bar_content, disks_content, effect_content, title_content

START = Boundaries(layers=20, cuts=(9, 14))
STEPS = st.lists(st.integers(-25, 25) | st.sampled_from(["next", "undo", "balance"]), max_size=40)


def walked(now: Boundaries, steps: list[int | str]) -> Boundaries:
    for step in steps:
        match step:
            case int():
                now = boundaries.moved(now, step)
            case "next":
                now = boundaries.chosen_next(now)
            case "undo":
                now = boundaries.undone(now)
            case _:
                now = boundaries.replaced(now, START.cuts, "")
    return now


@given(STEPS, st.none() | st.sets(st.integers(1, 19), max_size=12))
def test_boundaries_never_cross_and_every_layer_stays_owned(steps: list[int | str], places: set[int] | None) -> None:
    legal = None if places is None else tuple(sorted(places | set(START.cuts)))
    now = walked(msgspec.structs.replace(START, legal=legal), steps)
    assert all(len(part) >= 1 for part in now.parts)
    assert sum(map(len, now.parts)) == START.layers
    assert all(one.stop == other.start for one, other in pairwise(now.parts))
    assert legal is None or set(now.cuts) <= set(legal)


@given(STEPS)
def test_undoing_every_step_returns_to_the_beginning(steps: list[int | str]) -> None:
    now = walked(START, steps)
    for _ in now.past:
        now = boundaries.undone(now)
    assert (now.cuts, now.past) == (START.cuts, ())
    assert boundaries.undone(now).remark


@given(st.integers(-25, 25), st.sets(st.integers(1, 13), min_size=1))
def test_a_step_never_goes_the_other_way(by: int, places: set[int]) -> None:
    now = boundaries.moved(msgspec.structs.replace(START, legal=tuple(sorted(places))), by)
    assert (now.cuts[0] - 9) * by >= 0
    assert now.cuts[0] == 9 or now.cuts[0] in places


@pytest.mark.parametrize(
    ("by", "cut", "says"),
    [
        pytest.param(1, 12, "jumped to 12", id="over"),
        pytest.param(4, 12, "stopped at 12", id="before"),
        pytest.param(-1, 6, "jumped to 6", id="back"),
        pytest.param(-20, 3, "stopped", id="to-the-edge"),
    ],
)
def test_illegal_places_are_jumped_and_said(by: int, cut: int, says: str) -> None:
    now = boundaries.moved(msgspec.structs.replace(START, legal=(3, 6, 9, 12)), by)
    assert now.cuts == (cut, 14)
    assert says in now.remark


def test_a_boundary_that_cannot_move_says_why() -> None:
    tight = Boundaries(layers=3, cuts=(1, 2))
    assert boundaries.moved(tight, 1) == msgspec.structs.replace(tight, remark="Every Mac needs at least one layer.")
    only = msgspec.structs.replace(START, legal=(9, 14))
    assert "can't be cut" in boundaries.moved(only, 1).remark
    alone = Boundaries(layers=3, cuts=())
    assert boundaries.moved(boundaries.chosen_next(alone), 1).cuts == ()


def test_a_click_chooses_the_nearest_boundary() -> None:
    assert [boundaries.chosen_near(START, layer).chosen for layer in (0, 10, 13, 19)] == [0, 0, 1, 1]


def macs(*budgets: int) -> list[Peer]:
    names = ("studio", "mbp", "mini", "air")
    return [
        Peer(device_id=name.upper(), name=name, budget_bytes=budget * GB, trust="paired", state="connected")
        for name, budget in zip(names, budgets, strict=False)
    ]


def planned(topology: Topology | None, layers: tuple[str, ...] = (), peers: list[Peer] | None = None) -> Plan:
    return draft_plan(
        model="m",
        fingerprint="f",
        layout=FLAT,
        peers=peers or macs(64, 48, 32),
        context=4096,
        plan_gen=1,
        topology=topology,
        layers=layers,
    )


@pytest.mark.parametrize("topology", ["private", "forward", "reverse"])
def test_the_planner_reads_the_spans_as_they_are_meant(topology: Topology) -> None:
    plan = planned(topology)
    cuts = (1, plan.layers - 1)
    again = planned(plan.topology, spans(plan, cuts))
    assert [s.device_id for s in again.owners] == [s.device_id for s in plan.owners]
    assert boundaries.cuts_of(again) == cuts
    assert again.topology == plan.topology


def test_spans_follow_the_budgets_and_not_the_order_of_the_layers() -> None:
    plan = planned("private", ("0:3", "8:9", "4:7"))
    assert [s.peer for s in plan.owners] == ["studio", "mini", "mbp"]
    assert spans(plan, boundaries.cuts_of(plan)) == ("0:3", "8:9", "4:7")
    assert boundaries.divided_as(planned("private"), plan) == (5, 7)


def test_a_request_leaves_out_the_macs_that_the_plan_left_out() -> None:
    plan = planned("private", peers=macs(64, 48))
    request = boundaries.options_of(plan, macs(64, 48, 32))
    assert (request.without, request.topology, request.context, request.layers) == (("MINI",), "private", 4096, ())


SHARED = Parallelism(choice="auto", strategy="tp", reason="r", group="rdma")


@pytest.mark.parametrize(
    ("how", "asked"),
    [
        (None, ("private", None, False)),
        (SHARED, (None, "auto", True)),
        (msgspec.structs.replace(SHARED, strategy="pp", group="sealed"), (None, "auto", False)),
        (Parallelism(choice="pp", strategy="pp", reason="r"), ("private", "pp", False)),
        (Parallelism(choice="pp", strategy="single", reason="r"), (None, "pp", False)),
    ],
)
def test_what_was_decided_is_asked_for_again(
    how: Parallelism | None, asked: tuple[Topology | None, str | None, bool]
) -> None:
    request = boundaries.options_of(msgspec.structs.replace(planned("private"), parallelism=how), ())
    assert (request.topology, request.parallelism, request.rdma) == asked


KNOWN = PlanPreview(
    plan=REVERSE,
    layer_bytes=100,
    kv_bytes=2000,
    forecast=Forecast(stages_s=(0.06, 0.09, 0.05), hops_s=(0.01, 0.01, 0.03), prompt_s=1, load_s=1, measured=True),
)


def test_the_effect_is_what_the_node_said_and_moves_with_the_layers() -> None:
    exact = effect(KNOWN, (9, 14))
    assert exact
    assert exact.is_exact
    assert [(s.peer, s.layers, s.token_s) for s in exact.shares] == [("b", 9, 0.09), ("c", 5, 0.05), ("head", 6, 0.06)]
    assert exact.tokens_per_s == pytest.approx(1 / 0.25)
    moved = effect(KNOWN, (11, 14))
    assert moved
    assert not moved.is_exact
    assert [(s.weight_bytes, s.kv_bytes) for s in moved.shares] == [(1100, 1100), (300, 300), (600, 600)]
    assert not moved.fits
    assert [s.free_bytes for s in moved.shares] == [-200, 1400, 800]
    assert moved.shares[0].token_s == pytest.approx(0.11)


def test_nothing_is_invented_where_the_node_said_nothing() -> None:
    silent = effect(msgspec.structs.replace(KNOWN, forecast=None), (9, 14))
    assert silent
    assert silent.tokens_per_s is None
    assert effect(PlanPreview(), (9, 14)) is None
    assert effect(KNOWN, (9,)) is None


@given(st.lists(st.integers(1, 19), min_size=2, max_size=2, unique=True).map(sorted))
def test_no_byte_is_lost_when_layers_are_alike(cuts: list[int]) -> None:
    now = effect(KNOWN, cuts)
    assert now
    assert sum(s.weight_bytes for s in now.shares) == 2000
    assert sum(s.layers for s in now.shares) == 20


NOWHERE, FIRST = StageDisk(layers=()), StageDisk(layers=((0, 9),), bytes_per_s=10.0)
# in the order of the ring: the head, b, c
ON_DISKS = msgspec.structs.replace(KNOWN, disks=(StageDisk(layers=((0, 20),)), FIRST, NOWHERE))


@pytest.mark.parametrize(
    ("cuts", "says"),
    [
        pytest.param(
            (9, 14), ["b ✓ all 9 layers", "c ↓ none of 5 layers 0.000 GB", "head ✓ all 6 layers"], id="planned"
        ),
        pytest.param(
            (11, 14), ["b ↓ 9 of 11 layers 0.000 GB, about 20 s", "c ↓ none of 3 layers 0.000 GB"], id="moved"
        ),
    ],
)
def test_what_has_to_come_to_each_disk_moves_with_the_layers(cuts: tuple[int, ...], says: list[str]) -> None:
    means = effect(ON_DISKS, cuts)
    assert means
    head, *lines = (" ".join(line.split()) for line in disks_content(means, 76).plain.split("\n"))
    assert (head, lines[: len(says)]) == ("Mac on disk to download", says)
    counts = [share.layers for share in means.shares]
    assert [s.disk and s.disk.missing_bytes for s in means.shares] == [100 * (counts[0] - 9), 100 * counts[1], 0]


def test_where_nothing_has_to_come_one_line_says_so_and_what_nobody_told_is_not_said() -> None:
    told = effect(msgspec.structs.replace(ON_DISKS, disks=(FIRST, FIRST, StageDisk(layers=None))), (9, 14))
    silent = effect(KNOWN, (9, 14))
    assert told
    assert silent
    assert [share.disk is None for share in told.shares] == [False, True, False]
    assert "c" not in disks_content(told, 76).plain.split("\n")[2].split()
    whole = effect(msgspec.structs.replace(ON_DISKS, disks=(ON_DISKS.disks[0],) * 3), (9, 14))
    assert whole
    assert disks_content(whole, 76).plain == "✓ Every Mac already has its layers."
    assert disks_content(silent, 76).plain == ""


@pytest.mark.parametrize("width", [56, 76, 116, 200])
def test_the_editor_is_never_wider_than_its_pane(width: int) -> None:
    names = ["日本語の名前がとても長いMac", "mini-with-a-very-long-name-indeed", "c"]
    owners = zip(REVERSE.owners, names, strict=True)
    stages = tuple(msgspec.structs.replace(owner, peer=name) for owner, name in owners)
    known = msgspec.structs.replace(ON_DISKS, plan=msgspec.structs.replace(REVERSE, stages=stages))
    for cuts in ((9, 14), (1, 2), (18, 19)):
        means = effect(known, cuts)
        assert means
        now = Boundaries(layers=20, cuts=cuts, chosen=1)
        *table, _sentence = effect_content(means, 1.0, width).plain.split("\n")
        disks = disks_content(means, width).plain.split("\n")
        lines = [*bar_content(now, names, width).plain.split("\n"), *table, *disks]
        assert max(cell_len(line) for line in lines) <= width
        assert len(bar_content(now, names, width).plain.split("\n")) == 6
    assert title_content(REVERSE, "not applied", width).cell_length == width


def test_a_mac_that_lacks_memory_is_told_by_glyph_word_and_number() -> None:
    means = effect(KNOWN, (11, 14))
    assert means
    lines = effect_content(means, 4.0, 76).plain.split("\n")
    assert "✗ needs 0.1 GB more" in lines[1]
    assert "✓ 0.000 GB free" in lines[2]
    assert lines[-1] == "One token = 200 ms compute + 50.0 ms hops ≈ 4.0 tok/s"


@pytest.mark.parametrize(
    ("loaded", "says"),
    [
        pytest.param(Loaded((9, 14), "m", 1), "● Currently loaded.", id="same"),
        pytest.param(Loaded(None, "", 0), "Enter loads the model with this split on 3 Macs.", id="nothing"),
        pytest.param(Loaded(None, "x", 0), "▲ Applying unloads x and loads this model on 3 Macs.", id="another"),
        pytest.param(
            Loaded((7, 14), "m", 1),
            "▲ Applying unloads the model and loads it again on 3 Macs (b +2, c −2 layers), and stops the running "
            "answer.",
            id="writing",
        ),
        pytest.param(
            Loaded((9, 13), "m", 3),
            "▲ Applying unloads the model and loads it again on 3 Macs (c +1, head −1 layers), and stops 3 running "
            "answers.",
            id="rows",
        ),
    ],
)
def test_what_applying_does_is_said_before(loaded: Loaded, says: str) -> None:
    assert applying_content(REVERSE, (9, 14), loaded).plain == says


def test_one_mac_has_nothing_to_move() -> None:
    text = bar_content(Boundaries(layers=4, cuts=()), ["studio"], 60).plain
    assert "studio holds the whole model, so there is no boundary to move." in text


class PartlyOnDisks(StillNode):
    """The same three Macs for any boundaries; one has nothing of the model yet."""

    async def plan(self, request: PlanRequest) -> PlanPreview:
        plan = planned("private", request.layers)
        disks = {"STUDIO": ((0, 10),), "MBP": ((4, 7),), "MINI": ()}
        there = tuple(StageDisk(layers=disks[s.device_id], bytes_per_s=GB / 4) for s in plan.stages)
        return PlanPreview(plan=plan, layer_bytes=GB, cuts=tuple(range(1, 10)), disks=there)


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_the_editor_says_what_is_on_each_disk_while_a_boundary_moves(size: tuple[int, int]) -> None:
    app = MaclusterApp(PartlyOnDisks(Snapshot(plan=planned("private"), plan_status="ready")))  # type: ignore[arg-type]

    async def says(pilot: Pilot[None], *words: str) -> None:
        async with asyncio.timeout(30):
            while not all(each in " ".join(text_of(app).split()) for each in words):
                await pilot.pause()

    async with app.run_test(size=size) as pilot:
        while app.state.snapshot.plan is None:
            await pilot.pause()
        await pilot.press("f4")
        await says(
            pilot, "studio ✓ all 5 layers", "mbp ↓ 2 of 3 layers", "1.0 GB, about 4 s", "mini ↓ none of 2 layers"
        )
        await pilot.press("left")
        await says(
            pilot, "studio ✓ all 4 layers", "mbp ↓ 3 of 4 layers", "mini ↓ none of 2 layers", "2.0 GB, about 8 s"
        )


class RankPlanner(StillNode):
    """Plans ranks for every request."""

    async def plan(self, request: PlanRequest) -> PlanPreview:
        how = Parallelism(choice="tp", strategy="tp", reason="r")
        plan = msgspec.structs.replace(planned("private"), topology="tensor", parallelism=how)
        return PlanPreview(plan=plan, cuts=(1, 2))


async def test_ranks_are_not_edited_and_the_editor_says_what_to_do() -> None:
    plan = (await RankPlanner(Snapshot()).plan(PlanRequest(model="m"))).plan
    app = MaclusterApp(RankPlanner(Snapshot(plan=plan, plan_status="ready")))  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        while app.state.snapshot.plan is None:
            await pilot.pause()
        await pilot.press("f4")
        async with asyncio.timeout(10):
            while "part of every layer, so" not in text_of(app):
                await pilot.pause()
        assert "→ Choose a topology other than tensor" in text_of(app)
        await pilot.press("left", "b", "enter")
        assert isinstance(app.screen, SplitScreen)


async def test_without_a_model_the_editor_says_where_to_get_one() -> None:
    app = app_with(Snapshot())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f4", "left", "tab", "b", "u", "enter")
        assert isinstance(app.screen, SplitScreen)
        assert "Ctrl+O chooses one" in str(app.screen.query_one("#boundaries", Static).content)
        await pilot.press("escape")
        assert len(app.screen_stack) == 1
