"""The forecast of a plan: measured figures where there are any, marked estimates, and honest advice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.events import Peer, Plan
from core.models.files.cache_size import CacheSize
from core.models.files.layout import Layout
from core.plan.chip_bandwidth import memory_bytes_per_s
from core.plan.cost_curve import ALIKE, MOST_POINTS, Curve, Curves, Point, curve_name, learned, seconds_for
from core.plan.forecast import EFFICIENCY, LEAD_S, PROMPT_TOKENS, MacSpeeds, forecast, kept_advice, plan_work_of
from core.plan.make_plan import draft_plan
from core.requests.plans import Forecast
from core.settings import GB, PREFILL_CHUNK

LAYOUT = Layout(
    layers=10,
    layer_bytes=(GB,) * 10,
    token_bytes=(GB,) * 10,
    embed_bytes=GB,
    output_bytes=GB,
    tied=False,
    caches=(CacheSize(bytes_per_token=1000),) * 10,
)
SIZE = 10_000
WHOLE = 12 * GB


@pytest.mark.parametrize(
    ("chip", "gb_per_s"),
    [
        pytest.param("M2 Ultra", 800, id="ultra"),
        pytest.param("Apple M1", 68, id="brand"),
        pytest.param("M3 Max", 300, id="slower of two"),
        pytest.param("M4 Pro (14 cores)", 273, id="more words"),
        pytest.param("M5 Max", 460, id="the newest"),
        pytest.param("M5 Ultra", 153, id="at least what the smallest of its generation has"),
        pytest.param("M15 Pro", None, id="of tomorrow"),
        pytest.param("x86_64", None, id="no Mac"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_bandwidth_of_a_chip(chip: str, gb_per_s: float | None) -> None:
    assert memory_bytes_per_s(chip) == (gb_per_s and gb_per_s * 1e9)


@pytest.mark.parametrize(
    ("points", "amount", "seconds"),
    [
        pytest.param([], 1, None, id="nothing"),
        pytest.param([(4, 2)], 2, 1, id="in proportion"),
        pytest.param([(4, 2)], 33, None, id="too large"),
        pytest.param([(4, 2)], 0.4, None, id="too small"),
        pytest.param([(2, 2), (4, 3)], 3, 2.5, id="between"),
        pytest.param([(2, 2), (4, 3)], 1, 1.5, id="a fixed part below"),
        pytest.param([(2, 2), (4, 3), (8, 8)], 10, 10, id="as steep beyond as all of it"),
        pytest.param([(2, 2), (7, 3), (8, 8)], 10, 10, id="not as steep as noise"),
        pytest.param([(2, 2), (3, 5), (8, 8)], 1, 1, id="nor below"),
        pytest.param([(2, 3), (4, 2)], 4, 2, id="more took less, there"),
        pytest.param([(2, 3), (4, 2)], 3, 2.5, id="more took less, between"),
        pytest.param([(2, 3), (4, 2)], 8, 4, id="more took less, beyond"),
        pytest.param([(2, 1), (4, 4)], 0.5, 0.25, id="never below nothing"),
    ],
)
def test_seconds_lie_on_straight_lines(points: list[tuple[float, float]], amount: float, seconds: float | None) -> None:
    assert seconds_for(tuple(Point(*point) for point in points), amount, 8) == seconds


@given(st.lists(st.tuples(st.floats(1, 1e12), st.floats(0, 1e6)), min_size=1, max_size=40))
def test_a_curve_stays_small_in_order_and_near_what_was_measured(measured: list[tuple[float, float]]) -> None:
    curve: Curve = ()
    for point in measured:
        curve = learned(curve, *point)
        assert any(point[0] / ALIKE <= p.amount <= point[0] * ALIKE for p in curve) or len(curve) == MOST_POINTS
    assert 1 <= len(curve) <= MOST_POINTS
    assert list(curve) == sorted(curve)
    assert min(s for _, s in measured) / ALIKE <= min(p.seconds for p in curve)
    assert max(p.seconds for p in curve) <= max(s for _, s in measured) * ALIKE


def test_a_point_is_the_median_of_its_last_three_measurements() -> None:
    curve: Curve = ()
    for seconds, said in ((2, 2), (90, 2), (4, 4), (3, 4), (4, 4), (9, 4), (9, 9)):
        curve = learned(curve, 100, seconds)
        assert [point.seconds for point in curve] == [said]
    assert learned(curve, 100, 1, anew=True) == (Point(100, 1, (1,)),)
    assert learned(learned((), 100, 2), 125, 5) == (Point(100, 2, (2, 4)),)
    assert learned(learned((), 100, 2), 200, 4) == (Point(100, 2, (2,)), Point(200, 4, (4,)))


def split(*macs: tuple[str, float], **how: Any) -> Plan:
    """A split over Macs "a", "b", ... with these chips and budgets in GB."""
    peers = [
        Peer(device_id=name, name=name, chip=chip, budget_bytes=int(budget * GB))
        for name, (chip, budget) in zip("abcdefgh", macs, strict=False)
    ]
    wish: Any = {"model": "m", "fingerprint": "f", "layout": LAYOUT, "context": 64, "plan_gen": 1, "peers": peers}
    return draft_plan(**wish, **how)


def foretold(
    *macs: tuple[str, float],
    curves: Curves | None = None,
    rtt_s: float | None = 0.002,
    sizes: tuple[int, ...] = (SIZE, SIZE),
) -> Forecast:
    plan = split(*macs)
    chips = dict(zip("abcdefgh", (chip for chip, _ in macs), strict=False))
    sent = (*sizes, *(SIZE for _ in macs))[: len(macs)] if len(macs) > 1 else ()
    told = forecast(plan_work_of(plan, LAYOUT, sent, WHOLE), MacSpeeds(chips, lambda _a, _b: rtt_s, curves or {}))
    assert told is not None
    return told


def test_a_guess_is_the_bytes_over_the_bandwidth_and_says_that_it_is_one() -> None:
    told = foretold(("M2", 8), ("M1 Pro", 8))
    assert told.stages_s == pytest.approx((LEAD_S + 6 / (100 * EFFICIENCY), 5 / (200 * EFFICIENCY)))
    assert not told.measured
    assert told.alone_tokens_per_s is None, "the model does not fit the head"
    assert told.advice == ""


def test_nothing_is_said_of_a_mac_of_which_nothing_is_known() -> None:
    plan = split(("M2", 8), ("x86_64", 8))
    macs = MacSpeeds({"a": "M2", "b": "x86_64"}, lambda _a, _b: None, {})
    assert forecast(plan_work_of(plan, LAYOUT, (), WHOLE), macs) is None


def measured(*names: str, token_s: float, hop_s: float = 0.001, lead_s: float = 0.002) -> Curves:
    """Measurements: each Mac takes that long for 5 GB of weights."""
    tokens = min(PREFILL_CHUNK, PROMPT_TOKENS)
    curves: dict[str, Curve] = {}
    for name in names:
        curves[curve_name("token", name)] = (Point(5 * GB, token_s),)
        curves[curve_name("prompt", name)] = (Point(5 * GB * tokens, 1.0),)
        curves[curve_name("load", name)] = (Point(5 * GB, 2.0),)
        curves[curve_name("lead", name)] = curves[curve_name("join", name)] = (Point(1, lead_s),)
        for other in names:
            curves[curve_name("hop", name, other)] = (Point(SIZE, hop_s), Point(SIZE * tokens, 10 * hop_s))
    return curves


def test_what_was_measured_counts_and_a_token_is_the_sum_of_stages_and_hops() -> None:
    told = foretold(("x", 8), ("x", 8), curves=measured("a", "b", token_s=0.05))
    assert told.measured
    assert told.stages_s == pytest.approx((0.06 + 0.002, 0.05))
    assert told.hops_s == (0.001, 0.001)
    assert told.token_s == sum(told.stages_s) + sum(told.hops_s) == pytest.approx(0.114)
    assert told.load_s == pytest.approx(7 / 5 * 2.0 + 0.002), "the embedding is loaded too"
    chunk_s = (6 / 5, 1.0, 0.01, 0.001)  # only an ack comes back
    assert told.prompt_s == pytest.approx(sum(chunk_s) + (PROMPT_TOKENS / PREFILL_CHUNK - 1) * max(chunk_s))


@pytest.mark.parametrize("kind", ["token", "load", "lead", "join", "hop"])
def test_one_figure_that_nobody_measured_makes_it_a_guess(kind: str) -> None:
    curves = {n: c for n, c in measured("a", "b", token_s=0.05).items() if not n.startswith(f"{kind} ")}
    assert not foretold(("M2", 8), ("M2", 8), curves=curves).measured


def test_a_short_prompt_says_nothing_of_a_long_one() -> None:
    curves = dict(measured("a", "b", token_s=0.05))
    assert foretold(("M2", 8), ("M2", 8), curves=curves).prompt_s
    curves |= {curve_name("prompt", name): (Point(5 * GB * 36, 1.0),) for name in "ab"}
    told = foretold(("M2", 8), ("M2", 8), curves=curves)
    assert (told.measured, told.prompt_s) == (True, None)
    assert foretold(("M2", 8), ("M2", 8)).prompt_s, "a guess among guesses"
    pretended = forecast(
        plan_work_of(split(("M2", 30)), LAYOUT, (), WHOLE), MacSpeeds({"a": "M2"}, lambda *_: None, {}, True)
    )
    assert pretended
    assert pretended.prompt_s is None, "no chip of that name reads it"


def test_a_hop_back_says_what_the_hop_there_takes() -> None:
    curves = {n: c for n, c in measured("a", "b", token_s=0.05).items() if n != curve_name("hop", "b", "a")}
    assert foretold(("M2", 8), ("M2", 8), curves=curves).measured


def test_a_token_id_takes_as_long_as_the_smallest_frame_that_was_measured() -> None:
    told = foretold(("x", 8), ("x", 8), curves=measured("a", "b", token_s=0.05), sizes=(SIZE, 4))
    assert told.measured
    assert told.hops_s == (0.001, 0.001)


@pytest.mark.parametrize(
    ("hop_s", "budget", "advice"),
    [
        pytest.param(
            0.01,
            20,
            "This model fits on a alone and would run about 1.2× faster there. Splitting is for models that don't fit.",
            id="faster",
        ),
        pytest.param(0.001, 20, "", id="no more than noise"),
        pytest.param(0.01, 11, "", id="it does not fit"),
    ],
)
def test_the_advice_is_given_only_where_one_mac_is_clearly_faster(hop_s: float, budget: float, advice: str) -> None:
    told = foretold(("x", budget), ("x", budget), curves=measured("a", "b", token_s=0.05, hop_s=hop_s))
    assert told.advice == advice
    assert (told.alone_tokens_per_s is None) == (budget < 12)


def test_advice_that_was_given_stays_until_the_other_way_is_no_faster() -> None:
    said, noise = "a alone would be faster.", foretold(("x", 20), ("x", 20), curves=measured("a", "b", token_s=0.05))
    assert noise.alone_tokens_per_s
    assert (noise.advice, kept_advice(noise, said), kept_advice(noise, "")) == ("", said, "")
    slower = msgspec.structs.replace(noise, alone_tokens_per_s=noise.tokens_per_s * 0.99)
    assert kept_advice(slower, said) == ""


def test_a_guess_is_not_compared_with_a_measurement() -> None:
    """The head was measured with a stage too small to predict the whole model."""
    curves = dict(measured("a", "b", token_s=0.05)) | {curve_name("token", "a"): (Point(GB, 0.5),)}
    told = foretold(("M2 Ultra", 20), ("x", 100), curves=curves)
    assert told.alone_tokens_per_s
    assert (told.measured, told.advice) == (False, "")


def test_one_mac_has_no_hops_and_nothing_to_compare() -> None:
    told = foretold(("M2", 30))
    assert (len(told.stages_s), told.hops_s, told.alone_tokens_per_s, told.advice) == (1, (), None, "")


@given(st.lists(st.sampled_from(["M1", "M2 Pro", "M3 Max", "M2 Ultra"]), min_size=1, max_size=5), st.data())
def test_a_faster_mac_never_makes_a_token_slower(chips: list[str], data: st.DataObject) -> None:
    macs = [(chip, 8.0) for chip in chips]
    swapped = data.draw(st.integers(0, len(macs) - 1))
    faster = [("M2 Ultra", 8.0) if at == swapped else mac for at, mac in enumerate(macs)]
    before, after = foretold(*macs), foretold(*faster)
    assert after.token_s <= before.token_s
    assert after.prompt_s is not None is not before.prompt_s
    assert after.prompt_s <= before.prompt_s
    assert before.tokens_per_s == pytest.approx(1 / (sum(before.stages_s) + sum(before.hops_s)))
    assert foretold(*macs, rtt_s=0.0).token_s <= before.token_s


def test_only_the_experts_that_a_token_passes_are_read() -> None:
    few = msgspec.structs.replace(LAYOUT, token_bytes=(GB // 10,) * 10)
    assert few.read_bytes(0, 10, output=True) == 2 * GB
    assert few.total_bytes == LAYOUT.total_bytes == WHOLE
    assert msgspec.structs.replace(few, tied=True).read_bytes(0, 10, output=True) == 3 * GB


def test_a_hop_is_foretold_by_the_way_that_carried_as_much() -> None:
    there, back = curve_name("hop", "a", "b"), curve_name("hop", "b", "a")
    curves: Curves = {there: (Point(1e3, 0.001), Point(1e6, 0.02)), back: (Point(8e3, 0.002),)}
    macs = MacSpeeds({}, lambda _a, _b: None, curves)
    assert macs.hop(1e6, "b", "a").seconds == pytest.approx(0.02)
    assert macs.hop(8e3, "b", "a").seconds == pytest.approx(0.002)
