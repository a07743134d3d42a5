"""The known model that is offered first."""

from __future__ import annotations

import msgspec
import pytest

from core.models.known.known_models import known_models
from core.node.ring.hub_model_previews import best_first, offered
from core.plan.forecast import MacSpeeds
from core.requests.plans import HubOffer, ModelChoice, PlanPreview
from tests.support.planning import peer
from tests.support.screen_events import PLAN


def choice(name: str, nbytes: int, *, fits: bool) -> ModelChoice:
    return ModelChoice(
        name=name,
        path="",
        model_type="llama",
        layers=6,
        total_bytes=nbytes,
        quantization="4-bit",
        context_max=4096,
        offer=HubOffer(repo=name, revision="main", licence="mit", listed_on="2026-01-01"),
        preview=PlanPreview(plan=PLAN) if fits else PlanPreview(draft=PLAN),
    )


TEXT_ONLY = ("mlx-community/Qwen3.5-9B-8bit",)
SMALL, LARGE = choice("small", 1, fits=True), choice("large", 5, fits=True)
HUGE, VAST = choice("huge", 7, fits=False), choice("vast", 9, fits=False)


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ((SMALL, LARGE), "large small"),
        ((VAST, SMALL, HUGE, LARGE), "large small huge vast"),
        ((VAST, HUGE), "huge vast"),
        ((), ""),
    ],
)
def test_the_largest_that_fits_comes_first_and_what_lacks_least_before_what_lacks_more(
    given: tuple[ModelChoice, ...], order: str
) -> None:
    assert [each.name for each in best_first(given)] == order.split()


@pytest.mark.parametrize(
    ("gigabytes", "best", "macs"),
    [
        pytest.param((48, 24, 12), "mlx-community/Llama-3.3-70B-Instruct-8bit", 3, id="64 + 32 + 16 GB"),
        pytest.param((12,), "mlx-community/Qwen3.5-9B-8bit", 1, id="one Mac of 16 GB"),
        pytest.param((144, 48), "mlx-community/Qwen3-235B-A22B-Instruct-2507-4bit", 2, id="two large ones"),
    ],
)
def test_what_fits_best_depends_on_the_macs(gigabytes: tuple[int, ...], best: str, macs: int) -> None:
    peers = [peer(name, each) for name, each in zip("abc", gigabytes, strict=False)]
    speeds = MacSpeeds({each.device_id: "M2 Max" for each in peers}, lambda *_: None, {})
    listed = offered(known_models(), {"Qwen3-0.6B-4bit"}, peers, speeds)
    assert len(listed) == len(known_models().models) - 1, "what lies on a disk is not offered"
    first = listed[0]
    assert first.name == best
    assert first.offer
    assert first.offer.text_only == (best in TEXT_ONLY)
    assert first.preview.plan
    assert len(first.preview.plan.stages) == macs
    assert first.preview.forecast
    fitting = [each.preview.plan is not None for each in listed]
    assert fitting == sorted(fitting, reverse=True)
    assert all(each.preview.problem for each in listed if each.preview.plan is None)
    assert msgspec.json.decode(msgspec.json.encode(listed), type=list[ModelChoice]) == listed
