"""The offer of the picker and `macluster models` when no disk has a model."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from core.errors import Problem
from core.events import Snapshot
from core.models.known.known_models import known_models
from core.node.ring.hub_model_previews import offered
from core.plan.forecast import MacSpeeds
from core.requests.disks import DownloadRequest
from core.requests.plans import ModelChoice, PlanPreview
from tests.support.app import StillNode, text_of
from tests.support.planning import peer
from tests.support.screen_events import PLAN
from tests.support.waiting import until
from tui.app import MaclusterApp
from tui.cli.models import fit_words, known_lines
from tui.screens.dialogs import AskScreen, ChoiceScreen
from tui.screens.models import ModelsScreen
from tui.state.format import day

MACS = [peer("a", 48), peer("b", 24)]
SPEEDS = MacSpeeds({each.device_id: "M2 Max" for each in MACS}, lambda *_: None, {})
BEST = "mlx-community/Qwen3.5-122B-A10B-4bit"


@cache
def known() -> list[ModelChoice]:
    return offered(known_models(), (), MACS, SPEEDS)


class EmptyNode(StillNode):
    """A node without models on disk; it records the requested download."""

    def __init__(self) -> None:
        super().__init__(Snapshot())
        self.downloads: list[DownloadRequest] = []

    async def known_models(self) -> list[ModelChoice]:
        return known()

    async def download(self, request: DownloadRequest) -> None:
        self.downloads.append(request)


@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param((120, 36), marks=pytest.mark.nightly), (80, 24)])
async def test_an_empty_picker_offers_what_fits_best_and_d_downloads_it(size: tuple[int, int]) -> None:
    node = EmptyNode()
    app = MaclusterApp(node)  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await pilot.press("ctrl+o")
        await until(lambda: "Licence: apache-2.0" in text_of(app))
        shown = text_of(app)
        assert all(words in shown for words in ("Models on the hub", "✓▸Qwen3.5-122B", "69 GB", "≈ ", "2 Macs"))
        assert "68.7 GB weights · 4-bit, text only" in shown
        assert f"Licence: apache-2.0 (catalogue of {day(known_models().made_on)})" in shown
        assert max(map(len, shown.splitlines())) == size[0]
        for answer in range(3):  # the three answers: not now, its description, all of it
            await pilot.press("d")
            await until(lambda: isinstance(app.screen, ChoiceScreen))
            await pilot.press(*["down"] * answer, "enter")
            await until(lambda: isinstance(app.screen, ModelsScreen))
        await until(lambda: len(node.downloads) == 2)
    assert [(each.repo, each.split) for each in node.downloads] == [(BEST, True), (BEST, False)]


@pytest.mark.slow
async def test_a_typed_name_is_there_again_while_the_hub_is_away() -> None:
    node = EmptyNode()
    app = MaclusterApp(node)  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+o")
        await until(lambda: "Licence" in text_of(app))
        for typed in ("acme/toy", ""):
            await pilot.press("d")
            await until(lambda: isinstance(app.screen, ChoiceScreen))
            await pilot.press("up", "enter")
            await until(lambda: isinstance(app.screen, AskScreen))
            await pilot.press(*typed)
            assert "acme/toy" in text_of(app)
            await pilot.press("enter")
            await until(lambda: isinstance(app.screen, ModelsScreen))
        await until(lambda: len(node.downloads) == 2)
    assert {each.repo for each in node.downloads} == {"acme/toy"}


def test_a_split_that_fits_and_cannot_be_loaded_is_not_said_to_lack_memory() -> None:
    what = "mini has not told yet what lies on its disk."
    preview = PlanPreview(draft=PLAN, problem=Problem(kind="PlanError", what=what))
    assert fit_words(replace(known()[0], offer=None, preview=preview)) == what


def test_the_command_says_what_would_fit() -> None:
    lines = known_lines(known())
    made = f"catalogue of {day(known_models().made_on)}"
    assert lines[0] == f"Models that fit 72.0 GB, the memory of these Macs, largest first; then the others ({made}):"
    assert lines[2].startswith(BEST)
    assert lines[2].endswith("2 Macs")
    assert "4-bit, text only" in lines[2]
    assert "text only" not in next(line for line in lines if "gpt-oss-120b" in line)
    assert "needs" in lines[-1]
    assert known_lines([]) == ["Your Macs have every known model of the hub."]
