"""The model picker over a real demo of two Macs: a model is copied, downloaded and loaded as chosen, at both sizes."""

from __future__ import annotations

import shutil

import pytest

from tests.support.cluster import running_demo
from tests.support.hub import Hub, running_hub
from tests.support.maker import make_model
from tests.support.person import Person, viewer_of
from tui.cli.demo import Demo
from tui.screens.dashboard import Dashboard
from tui.screens.dialogs import AskScreen, ChoiceScreen
from tui.screens.models import ModelsScreen
from tui.screens.split import SplitScreen


@pytest.mark.slow
async def test_a_model_is_brought_to_the_disks_and_loaded_as_it_was_chosen(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path_factory.mktemp("models")
    make_model(root / "tiny", "llama")
    make_model(root / "solo", "llama", layers=6, context=65_536, head_dim=64)
    make_model(root / "toy", "llama", layers=4)
    async with running_hub(root / "toy", "acme/toy") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        async with running_demo(root / "tiny", (3.0, 2.0)) as demo:
            shutil.copytree(root / "solo", demo.home.models / "solo")
            async with viewer_of(demo, (120, 36)) as viewer:
                await it_is_copied(viewer)
                await it_is_loaded_as_chosen(viewer, demo)
            async with viewer_of(demo, (80, 24)) as viewer:
                await it_is_downloaded(viewer, hub)


async def opened(viewer: Person, width: int) -> ModelsScreen:
    await viewer.opens("ctrl+o", screen=ModelsScreen)
    await viewer.sees("Choose a model", "on disk", "solo", "Esc Back")
    assert max(map(len, viewer.text.splitlines())) == width
    screen = viewer.app.screen
    assert isinstance(screen, ModelsScreen)
    return screen


async def to(viewer: Person, screen: ModelsScreen, name: str) -> None:
    """Move the cursor to an entry by keys."""
    for _ in range(9):
        if screen.list.pointed and screen.list.pointed.name == name:
            return
        await viewer.press("j")
    pytest.fail(viewer.text)


async def it_is_copied(viewer: Person) -> None:
    screen = await opened(viewer, 120)
    await viewer.sees("on 1 of 2", "↓ solo", "copies 0.001 GB")
    await to(viewer, screen, "solo")
    await viewer.sees("↓ Loading first copies 0.001 GB to mbp", "Enter: load")
    await viewer.opens("d", screen=ChoiceScreen)
    await viewer.sees("Copy to mbp", "encrypted links")
    await viewer.press("down", "enter")
    await viewer.sees("solo is now on the disk of mbp.", "Enter: load · e: edit the split", "weights are on every disk")


async def it_is_loaded_as_chosen(viewer: Person, demo: Demo) -> None:
    screen = viewer.app.screen
    assert isinstance(screen, ModelsScreen)
    await to(viewer, screen, "solo")
    await viewer.sees("context 64k of 64k")
    await viewer.press("left")
    await viewer.sees("context 32k of 64k")
    await viewer.opens("c", screen=ChoiceScreen)
    await viewer.sees("32k (current)", "64k")
    await viewer.press("down", "down", "down", "down", "enter")
    await viewer.sees("context 16k of 64k")
    await viewer.press("K")
    await viewer.sees("GB 8-bit", "✓ solo")
    await viewer.press("K", "K")
    await viewer.press("T")
    await viewer.sees("forward, 2 hops per token")
    await viewer.opens("e", screen=SplitScreen)
    await viewer.opens("escape", screen=ModelsScreen)
    await to(viewer, screen, "solo")
    await viewer.opens("enter", screen=Dashboard)
    await viewer.until(lambda: (loading := demo.head.now.plan) is not None and loading.model == "solo")
    plan = demo.head.now.plan
    assert plan
    assert (plan.model, plan.context, plan.topology, plan.kv_bits) == ("solo", 16_384, "forward", None)
    await to(viewer, await opened(viewer, 120), "solo")
    await viewer.sees("● solo", "loaded on 2 Macs", "context 16k of 64k")
    await viewer.opens("escape", screen=Dashboard)


async def it_is_downloaded(viewer: Person, hub: Hub) -> None:
    screen = await opened(viewer, 80)
    await viewer.press("h")
    await viewer.sees("Models on the hub", "Qwen3-4B-4bit", "tok/s", "2 Macs", "Licence")
    await viewer.press("h")
    await viewer.sees("Models", "on disk")
    await to(viewer, screen, "solo")
    await viewer.opens("d", screen=AskScreen)
    await viewer.press(*"acme/toy")
    hub.slow_s = 0.5
    await viewer.press("enter")
    await viewer.sees("toy", "copying here", "↓")
    await viewer.opens("escape", screen=ChoiceScreen)
    await viewer.sees("Stop the download of acme/toy?")
    await viewer.opens("escape", screen=Dashboard)
    screen = await opened(viewer, 80)
    await to(viewer, screen, "acme/toy")
    await viewer.sees("downloading from the hub", "x: stop · Space: pause", "MB/s")
    await viewer.press("space")
    await viewer.sees("· paused", "Space: resume")
    await viewer.opens("b", screen=AskScreen)
    await viewer.sees("Megabytes per second")
    await viewer.press("9", "enter")
    await viewer.sees("(limit 9 MB/s)")
    await viewer.press("space")
    await viewer.sees("Space: pause", "(limit 9 MB/s)")
    await viewer.opens("x", screen=ChoiceScreen)
    await viewer.press("down", "enter")
    await viewer.sees("partial", "can't be used")
    await to(viewer, screen, "acme/toy")
    await viewer.sees("Its download is not finished.")
    hub.slow_s = 0.0
    await viewer.opens("d", screen=AskScreen)
    await viewer.sees("acme/toy")
    await viewer.press("enter")
    await viewer.sees("acme/toy is now on the disk", "copies 0.00")
    await viewer.press("f")
    await viewer.sees("that fit")
    await viewer.pilot.resize_terminal(60, 16)
    await viewer.sees("Choose a model", "toy")
