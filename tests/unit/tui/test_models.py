"""The model picker: what it says of the model on which the cursor rests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from core.errors import Problem
from core.events import AnyEvent, Snapshot, Topology
from core.requests import LoadRequest, ModelChoice, PlanPreview, PlanRequest
from tests.support.told import PLAN
from tui.app import MaclusterApp
from tui.screens.models import ModelsScreen
from tui.state.state import UiState
from tui.widgets.fit_preview import fit_content

NOTE = "mini begins with layer 15 instead of 13: layers 13 to 14 share state with those before."
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
    """A node with two models that nobody has examined; it notes which it is asked to plan."""

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


def test_a_split_that_does_not_fit_is_drawn_all_the_same() -> None:
    shown = fit_content(choice("toy", PlanPreview(draft=PLAN)), UiState(), 60).plain
    assert all(s.peer in shown for s in PLAN.stages)
    assert "Enter loads it" not in shown


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
        assert [(r.model, r.context) for r in node.asked] == [(first.name, PLAN.context)]
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
            await pilot.press("t")
            await asyncio.wait_for(shown(topology), 10)
        asked = [request.topology for request in node.asked if request.topology]
        assert asked == ["forward", "reverse", "single", "tensor", "private", "forward"]
        await pilot.press("P")
        await asyncio.wait_for(shown("private"), 10)
        assert (node.asked[-1].parallelism, node.asked[-1].topology) == ("auto", None)
        await pilot.press("t")
        await asyncio.wait_for(shown("forward"), 10)
        assert node.asked[-1].parallelism is None
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert [request.topology for request in node.loaded] == ["forward", None]
