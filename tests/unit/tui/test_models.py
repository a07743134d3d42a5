"""The model picker: its text about the model under the cursor."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec
import pytest

from core.errors import Problem
from core.events import AnyEvent, Snapshot, Topology
from core.requests.plans import LoadRequest, ModelChoice, PlanPreview, PlanRequest
from tests.support.app import text_of
from tests.support.screen_events import PLAN
from tests.support.waiting import until
from tui.app import MaclusterApp
from tui.control.model_catalog import ModelCatalog
from tui.screens.help import topic_of
from tui.screens.models import ModelsScreen
from tui.screens.topology import TopologyScreen
from tui.state.format import WARN
from tui.state.load_options import as_preview, option_words, with_balance, with_bits, with_wire
from tui.state.state import UiState
from tui.widgets.fit_preview import fit_content
from tui.widgets.model_list import fit_mark

NOTE = "mini starts at layer 15 instead of 13: layers 13 to 14 share state with those before."
NOTED = msgspec.structs.replace(PLAN, notes=(NOTE,))


def choice(name: str, preview: PlanPreview) -> ModelChoice:
    return ModelChoice(
        name=name,
        path="/",
        model_type="llama",
        layers=6,
        total_bytes=10**9,
        quantization="4-bit",
        context_max=131_072,
        preview=preview,
    )


class ExaminingNode:
    """A node with two unexamined models; it records the requests for plans."""

    def __init__(self) -> None:
        self.asked: list[PlanRequest] = []
        self.loaded: list[LoadRequest] = []

    async def events(self) -> AsyncIterator[AnyEvent]:
        yield Snapshot()
        await asyncio.Event().wait()

    async def models(self) -> list[ModelChoice]:
        return [choice(name, PlanPreview(plan=PLAN)) for name in ("one", "two")]

    async def plan(self, request: PlanRequest) -> PlanPreview:
        self.asked.append(request)
        if request.topology == "single":
            return PlanPreview(problem=Problem(kind="DoesNotFit", what="Too big."))
        return PlanPreview(plan=msgspec.structs.replace(NOTED, topology=request.topology or "private"), cuts=(1, 2))

    async def load(self, request: LoadRequest) -> PlanPreview:
        self.loaded.append(request)
        return PlanPreview()


def test_the_preview_has_the_notes_and_the_context_of_the_model() -> None:
    shown = fit_content(choice("toy", PlanPreview(plan=NOTED)), UiState(), 60).plain
    assert NOTE in shown
    assert "of 128k" in shown


async def test_in_the_smallest_terminal_the_picker_keeps_the_fit_and_the_keys_to_load_and_to_leave() -> None:
    app = MaclusterApp(ExaminingNode())  # type: ignore[arg-type]
    async with app.run_test(size=(60, 16)) as pilot:
        await pilot.press("ctrl+o")
        await until(lambda: "Enter: load" in text_of(app))
        lines = text_of(app).splitlines()
        preview = next(at for at, line in enumerate(lines) if "Fit preview" in line)
        shown = "\n".join(lines[preview:-1])
        assert all(f"{stage.peer} " in shown for stage in PLAN.stages)
        assert "▸one" in "\n".join(lines[:preview])
        assert all(key in lines[-1] for key in ("Enter Load", "Esc Back", "F1 Help", "Ctrl+Q Quit"))


def test_a_split_that_does_not_fit_is_drawn_all_the_same() -> None:
    shown = fit_content(choice("toy", PlanPreview(draft=PLAN)), UiState(), 60).plain
    assert all(s.peer in shown for s in PLAN.stages)
    assert "Enter loads it" not in shown


def test_who_could_read_what_is_said_stands_out_above_the_stages() -> None:
    note = "mini sees logits: it has the output."
    plan = msgspec.structs.replace(PLAN, topology="forward", notes=(note, NOTE))
    shown = fit_content(choice("toy", PlanPreview(plan=plan)), UiState(), 60)
    places = [shown.plain.index(text) for text in (f"forward, {len(PLAN.stages)} hops", f"▲ {note}", "▇")]
    assert places == sorted(places)
    at = shown.plain.index(note)
    assert [span.style for span in shown.spans if span.start <= at < span.end] == [WARN]


def test_bits_that_cannot_be_are_not_offered() -> None:
    whole = choice("toy", PlanPreview(plan=PLAN, cuts=(1,), whole_kv="its heads are odd"))
    asked = LoadRequest(model=whole.name)
    in_eight = msgspec.structs.replace(asked, kv_bits=8, topology="forward")
    assert with_bits(asked, whole).kv_bits is with_bits(in_eight, whole).kv_bits is None
    assert option_words(asked, whole) == []
    assert option_words(in_eight, whole) == ["cache: 8-bit", "forward"]


def test_hidden_states_travel_as_they_are_and_then_as_each_type() -> None:
    toy = choice("toy", PlanPreview(plan=PLAN))
    request, seen = LoadRequest(model=toy.name), list[list[str]]()
    for _ in range(4):
        request = with_wire(request)
        seen.append(option_words(request, toy))
    assert seen == [["link data: float32"], ["link data: bfloat16"], ["link data: int8"], []]
    assert "Chosen" not in fit_content(toy, UiState(), 60, request).plain
    by_speed = with_balance(request)
    assert "Chosen: layers: by speed\n" in fit_content(toy, UiState(), 60, by_speed).plain
    assert with_balance(with_balance(by_speed)) == request


def test_without_a_node_and_while_it_loads_nothing_else_is_promised() -> None:
    assert "isn't running" in fit_content(None, UiState(), 60).plain
    loaded = msgspec.structs.replace(choice("toy", PlanPreview(plan=PLAN)), loaded=True)
    loading = Snapshot(plan=PLAN, plan_status="loading")
    assert [fit_mark(loaded, now).word for now in (loading, Snapshot())] == ["loading", "loaded"]


@pytest.mark.slow
async def test_every_cursor_is_seen_without_colour_and_the_help_has_the_name_of_the_screen() -> None:
    app = MaclusterApp(ExaminingNode())  # type: ignore[arg-type]
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("ctrl+o")
        for name in ("one", "two"):
            await until(lambda name=name: f"▸{name} " in text_of(app))  # type: ignore[misc]
            assert text_of(app).count("▸") == 1
            await pilot.press("down")
        topic = topic_of(app.screen)
        assert topic.title == topic.here[-1].head == "Choose a model"
        await pilot.press("c")
        await until(lambda: "▸4k (current)" in text_of(app))
        await pilot.press("escape", "ctrl+p", "down")
        await until(lambda: re.search(r"▸ +Edit the split: which Mac holds which layers", text_of(app)) is not None)


async def test_keys_that_cannot_choose_say_why_and_an_unseen_choice_is_not_loaded() -> None:
    class Slow(ExaminingNode):
        def __init__(self) -> None:
            super().__init__()
            self.answers = asyncio.Event()

        async def models(self) -> list[ModelChoice]:
            whole = PlanPreview(plan=PLAN, cuts=(1,), whole_kv="its heads are odd")
            loaded = msgspec.structs.replace(choice("one", PlanPreview(plan=PLAN)), loaded=True)
            return [loaded, choice("two", whole), choice("three", PlanPreview(plan=PLAN))]

        async def plan(self, request: PlanRequest) -> PlanPreview:
            if request.topology:
                await self.answers.wait()
            return await super().plan(request)

    node = Slow()
    app = MaclusterApp(node)  # type: ignore[arg-type]
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("ctrl+o")
        await until(lambda: isinstance(app.screen, ModelsScreen) and app.screen.list.pointed is not None)
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        assert {screen.why_not(run) for run in ("bits", "context", "parallelism", "longer(1)")} == {
            "Unload the model first (u) to change this."
        }
        assert screen.why_not("topology") == ""
        assert screen.list.why_not("select") == "one is already loaded."
        await pilot.press("enter")
        await until(lambda: [note.message for note in app._notifications] == ["one is already loaded."])
        await pilot.press("T")
        await until(lambda: isinstance(app.screen, TopologyScreen))
        await pilot.press("escape")
        await pilot.press("down")
        assert screen.list.pointed
        two = next(each for each in ("two", "three") if screen.list.pointed.name == each)
        if two != "two":
            await pilot.press("down")
        assert screen.why_not("bits") == "This model's cache can't be compressed: its heads are odd."
        assert screen.list.why_not("select") == ""
        assert screen.why_not("topology") == ""
        await pilot.press("T", "enter")
        assert node.loaded == []
        node.answers.set()
        await until(lambda: screen.list.pointed is not None and screen._catalog.is_planned(screen.list.pointed))
        await pilot.press("enter")
        await until(lambda: [request.topology for request in node.loaded] == ["forward"])


@pytest.mark.slow
async def test_what_was_chosen_in_the_list_of_models_holds_on_the_topology_screen() -> None:
    node = ExaminingNode()
    app = MaclusterApp(node)  # type: ignore[arg-type]
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("ctrl+o")
        await until(lambda: "context 4k of 128k" in text_of(app))
        await pilot.press("right", "K", "T")
        await until(lambda: "forward, 2 hops" in text_of(app))
        await pilot.press("escape", "T")
        await until(lambda: "▸forward  2 Macs" in text_of(app))
        await pilot.press("up", "enter")
        await until(lambda: bool(node.loaded))
        [asked] = node.loaded
        assert (asked.topology, asked.context, asked.kv_bits) == ("private", 8192, 8)


async def test_while_a_model_is_loaded_nobody_is_asked_about_another_topology() -> None:
    class Loading(ExaminingNode):
        async def events(self) -> AsyncIterator[AnyEvent]:
            yield Snapshot(plan=PLAN, plan_status="loading")
            await asyncio.Event().wait()

    app = MaclusterApp(Loading())  # type: ignore[arg-type]
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await until(lambda: app.state.snapshot.plan is not None)
        await pilot.press("escape", "T")
        await until(lambda: "forward  2 Macs" in text_of(app))
        assert isinstance(app.screen, TopologyScreen)
        assert app.screen.list.why_not("select") == "private is already loading."
        await pilot.press("down", "enter")
        await until(lambda: "A model is being loaded." in text_of(app))
        assert isinstance(app.screen, TopologyScreen)


async def test_the_model_under_the_cursor_is_examined_once() -> None:
    node = ExaminingNode()
    app = MaclusterApp(node)  # type: ignore[arg-type]
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("ctrl+o")

        async def noted() -> ModelsScreen:
            while not (isinstance(s := app.screen, ModelsScreen) and s.list.pointed and s.list.pointed.preview.cuts):
                await pilot.pause()
            return s

        screen = await asyncio.wait_for(noted(), 10)
        first = screen.list.pointed
        assert first
        assert first.preview.plan == NOTED
        assert [(r.model, r.context) for r in node.asked] == [(first.name, None)]
        await pilot.press("down")
        await asyncio.wait_for(noted(), 10)
        await pilot.press("up")
        await pilot.pause()
        assert sorted(r.model for r in node.asked) == ["one", "two"]
        assert [w for w in app.workers if w.group == "examine" and not w.is_finished] == []


async def test_a_key_plans_the_model_in_the_next_topology_and_what_is_shown_is_loaded() -> None:
    node = ExaminingNode()
    app = MaclusterApp(node)  # type: ignore[arg-type]
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("ctrl+o")

        async def shown(topology: Topology | None) -> None:
            def preview() -> PlanPreview | None:
                pointed = app.screen.list.pointed if isinstance(app.screen, ModelsScreen) else None
                return pointed.preview if pointed else None

            while (now := preview()) is None or (now.plan.topology if now.plan else None) != topology:
                await pilot.pause()

        await asyncio.wait_for(shown("private"), 10)
        for topology in ("forward", "reverse", None, "tensor", "private", "forward"):
            await pilot.press("T")
            await asyncio.wait_for(shown(topology), 10)
        asked = [request.topology for request in node.asked if request.topology]
        assert asked == ["forward", "reverse", "single", "tensor", "private", "forward"]
        await pilot.press("P")
        await asyncio.wait_for(shown("private"), 10)
        assert (node.asked[-1].parallelism, node.asked[-1].topology) == ("auto", None)
        await pilot.press("T")
        await asyncio.wait_for(shown("forward"), 10)
        assert node.asked[-1].parallelism is None
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert [request.topology for request in node.loaded] == ["forward", None]


async def test_what_somebody_else_loaded_is_what_was_chosen_last() -> None:
    class Shared(ExaminingNode):
        asked_elsewhere: LoadRequest | None = None

        async def models(self) -> list[ModelChoice]:
            one, two = await super().models()
            asked = self.asked_elsewhere
            return [msgspec.structs.replace(one, loaded=asked is not None, asked=asked), two]

    node = Shared()
    catalog = ModelCatalog(node)  # type: ignore[arg-type]
    await catalog.fetch()
    assert catalog.choices
    (one, _), here = catalog.choices, LoadRequest(model="one", context=8192, balance="speed")
    catalog.set_options(here)
    node.asked_elsewhere = LoadRequest(
        model="/models/one", context=2048, topology="forward", rows=2, layers=("0:3", "4:5")
    )
    await catalog.fetch()
    node.asked_elsewhere = None  # it is unloaded there, too
    await catalog.fetch()
    expected = LoadRequest(model="one", context=2048, topology="forward", rows=2)
    assert catalog.options(one) == expected
    assert node.asked[-1] == as_preview(msgspec.structs.replace(expected, model="one"))
    assert catalog.is_planned(one)
    assert option_words(expected, one) == ["context 2k", "forward", "2 rows"]
    catalog.set_options(here)  # a choice made here after that is newer
    await catalog.fetch()
    assert catalog.options(one) == here


def test_no_choice_is_unseen() -> None:
    """Every difference from the node's defaults is named."""
    usual = LoadRequest(model="toy")
    toy = choice("toy", PlanPreview(plan=PLAN))
    others: dict[str, object] = {
        "context": 2048, "kv_bits": 4, "rows": 2, "topology": "forward", "mirror": True,
        "parallelism": "tp", "balance": "auto", "wire": "int8",
        "draft": "tiny", "prefill": "auto",
    }  # fmt: skip
    elsewhere = {"model", "layers", "without", "verify", "rdma", "take_over"}  # shown by the plan, or asked for once
    assert {*others} | elsewhere == {*LoadRequest.__struct_fields__}
    for field, value in others.items():
        assert len(option_words(msgspec.structs.replace(usual, **{field: value}), toy)) == 1, field
    ranks = msgspec.structs.replace(usual, parallelism="tp", rdma=True)
    assert option_words(ranks, toy) == ["tp over RDMA"]
