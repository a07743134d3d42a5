"""The split editor over a real demo of three Macs: move, undo and apply, at both sizes."""

from __future__ import annotations

import pytest

from core.requests.plans import LoadRequest
from tests.support.cluster import ask, begin, finish, reference, running_demo
from tests.support.maker import make_model
from tests.support.person import Person, viewer_of
from tui.cli.demo import Demo
from tui.screens.dashboard import Dashboard
from tui.screens.dialogs import ChoiceScreen
from tui.screens.split import SplitScreen
from tui.state.boundaries import cuts_of

PROMPT = "tell me about hops"


async def edited(viewer: Person, size: tuple[int, int]) -> SplitScreen:
    """The editor, once it shows the node's reply."""
    await viewer.opens("f4", screen=SplitScreen)
    await viewer.sees("Edit split", "moving boundary ①", "studio | mbp", "weights + cache", "One token =", "Esc Back")
    assert max(map(len, viewer.text.splitlines())) == size[0]
    screen = viewer.app.screen
    assert isinstance(screen, SplitScreen)
    return screen


@pytest.mark.slow
async def test_boundaries_are_moved_undone_and_applied_and_the_answer_stays_right(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = tmp_path_factory.mktemp("models") / "tiny"
    make_model(model, "llama")
    expected = reference(model, [PROMPT], 12)[0]
    async with running_demo(model, (3.0, 2.0, 1.0)) as demo:
        async with viewer_of(demo, (120, 36)) as viewer:
            await it_is_moved_and_undone(viewer)
            await it_is_applied(viewer, demo, expected)
        async with viewer_of(demo, (80, 24)) as viewer:
            await it_begins_with_what_is_loaded(viewer, demo)
            await it_asks_before_an_answer_is_stopped(viewer, demo)


async def it_is_moved_and_undone(viewer: Person) -> None:
    screen = await edited(viewer, (120, 36))
    await viewer.sees("unchanged", "Currently loaded", "✓ ", "free after")
    await viewer.press("enter")
    await viewer.sees("This split is already loaded.")
    before = viewer.text.splitlines()[2:5]
    await viewer.press("left", "tab", "L", "shift+left")
    assert viewer.text.splitlines()[2:5] != before
    await viewer.sees("not applied", "mbp | mini", "▲ Applying unloads the model and loads it again on 3 Macs (")
    await viewer.press(*"u" * 3)
    assert viewer.text.splitlines()[2:5] == before
    await viewer.press("u")
    await viewer.sees("There is nothing to undo.", "unchanged")
    await viewer.pilot.click("#boundaries", offset=(4, 2))
    await viewer.sees("moving boundary ①")
    await viewer.press("escape")
    await viewer.until(lambda: viewer.app.screen is not screen)


async def it_is_applied(viewer: Person, demo: Demo, expected: list[int]) -> None:
    plan = demo.head.now.plan
    assert plan
    wanted = (cuts_of(plan)[0] - 2, *cuts_of(plan)[1:])
    await edited(viewer, (120, 36))
    await viewer.press("left", "left")
    await viewer.opens("enter", screen=ChoiceScreen)
    await viewer.sees("Apply this split?", "This unloads the model", "Cancel")
    await viewer.opens("enter", screen=SplitScreen)
    await viewer.opens("enter", screen=ChoiceScreen)
    await viewer.opens("down", "enter", screen=Dashboard)
    await demo.head.until(lambda w: w.now.plan_status == "ready" and w.now.plan != plan, 240, "Loading")
    loaded = demo.head.now.plan
    assert loaded
    assert cuts_of(loaded) == wanted
    assert loaded.topology == plan.topology
    answer = await ask(demo.head, PROMPT, 12)
    assert answer.tokens == expected


async def it_begins_with_what_is_loaded(viewer: Person, demo: Demo) -> None:
    screen = await edited(viewer, (80, 24))
    plan = demo.head.now.plan
    assert plan
    assert str(cuts_of(plan)[0]) in viewer.text.splitlines()[2]
    await viewer.sees("unchanged")
    await viewer.press("b")
    await viewer.sees("Balanced by the Macs' memory.", "not applied")
    await viewer.pilot.resize_terminal(60, 16)
    await viewer.sees("Edit split", "✓ ", "Enter Apply", "Esc Back")
    await viewer.pilot.resize_terminal(59, 15)
    await viewer.sees("This terminal is 59x15")
    await viewer.pilot.resize_terminal(80, 24)
    await viewer.press("escape")
    await viewer.until(lambda: viewer.app.screen is not screen)
    # opened from the model picker, for a model that is loaded in another way
    request = LoadRequest(model=demo.model, topology="forward")
    viewer.app.push_screen(SplitScreen(viewer.app, request))
    await viewer.sees("balanced, not applied", "and loads this model on 3 Macs")
    await viewer.opens("escape", screen=Dashboard)


async def it_asks_before_an_answer_is_stopped(viewer: Person, demo: Demo) -> None:
    running = await begin(demo.head, PROMPT, 3000)
    await viewer.until(lambda: bool(viewer.app.state.snapshot.running))
    await edited(viewer, (80, 24))
    await viewer.press("right")
    await viewer.sees("stops the running answer")
    await viewer.opens("escape", screen=Dashboard)
    await viewer.rests()
    assert demo.head.now.running == (running,)
    await demo.head.client.cancel(running)
    await finish(demo.head, running)
