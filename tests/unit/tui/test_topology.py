"""Texts of the topology chooser: the ring in order, what each Mac sees, the gain, and reasons against it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import Problem
from core.events import Peer, Plan, Topology
from core.models.files.cache_size import CacheSize
from core.models.files.layout import Layout
from core.models.files.sharding import Sharding
from core.models.slicing.split_profile import SplitProfile
from core.plan.forecast import MacSpeeds, forecast, plan_work_of
from core.plan.notes import EVERY_RANK_SEES, ON_THE_CABLE
from core.plan.preview import preview_of
from core.requests.plans import Forecast, ModelChoice, PlanPreview, PlanRequest
from core.settings import GB
from tui.cli.plan import forecast_lines
from tui.state.format import BAD, GOOD, WARN, Mark
from tui.state.load_options import TOPOLOGIES
from tui.state.state import UiState
from tui.widgets.fit_preview import fit_content
from tui.widgets.topology_text import Now, loading_words, row_content, title_content, token_path, topology_content

LAYOUT = Layout(
    layers=8,
    layer_bytes=(GB,) * 8,
    token_bytes=(GB,) * 8,
    embed_bytes=0,
    output_bytes=0,
    tied=False,
    caches=(CacheSize(),) * 8,
    sharding=Sharding(family="llama", has_variant=True, heads=12, kv_heads=6, hidden_bytes=10_240, reduces=80),
)
PROFILE = SplitProfile(layers=8, caches=LAYOUT.caches, cuts=tuple(range(1, 8)), boundary_bytes=(10_240,) * 8)
NAMES = ("studio", "mbp", "mini")
TOLD = Forecast(stages_s=(0.03, 0.02), hops_s=(0.005, 0.005), prompt_s=3.0, load_s=40.0, measured=True)
LOADED, NOTHING = Mark("●", "loaded", GOOD), Now(None, Mark("✗", "broken", BAD), 0)


def preview(
    topology: Topology | None, *budgets: int, forecast: Forecast | None = TOLD, rdma: bool = False, **more: Any
) -> PlanPreview:
    macs = [Peer(device_id=n, name=n, budget_bytes=b * GB) for n, b in zip(NAMES, budgets, strict=False)]
    request = PlanRequest(model="m", topology=topology, rdma=rdma)
    made = preview_of(request, model="m", fingerprint="f", layout=LAYOUT, peers=macs, profile=PROFILE)
    fields = {field: getattr(made, field) for field in made.__struct_fields__}
    return PlanPreview(**(fields | {"forecast": forecast} | more))


def plan(topology: Topology, *budgets: int) -> Plan:
    made = preview(topology, *budgets).plan
    assert made
    return made


@pytest.mark.parametrize(
    ("topology", "steps"),
    [
        pytest.param("private", ["studio embeds, 0–3", "mbp 4–5", "mini 6–7", "studio output"], id="private"),
        pytest.param("forward", ["studio embeds, 0–3", "mbp 4–5", "mini 6–7, output", "studio gets the token"], id="f"),
        pytest.param("reverse", ["studio asks", "mbp embeds, 0–1", "mini 2–3", "studio 4–7, output"], id="reverse"),
        pytest.param("single", ["studio embeds, 0–7, output"], id="single"),
        pytest.param("tensor", ["studio rank 0, output", "mbp rank 1", "mini rank 2"], id="tensor"),
    ],
)
def test_the_journey_names_every_mac_in_the_order_of_the_work(topology: Topology, steps: list[str]) -> None:
    assert token_path(plan(topology, 16, 8, 8)) == steps


@pytest.mark.parametrize("width", [118, 70, 54])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_row_fits_and_the_ring_is_not_cut_within_a_mac(topology: Topology, width: int) -> None:
    row = row_content(topology, preview(topology, 16, 8, 8), NOTHING, width)
    assert row.cell_length == width
    lines = topology_content(topology, preview(topology, 16, 8, 8), NOTHING, NAMES, width).plain.splitlines()
    said = " ".join(line.strip() for line in lines)
    assert all(step in said for step in token_path(plan(topology, 16, 8, 8)))
    table = [line for line in lines if line.startswith(("Mac ", *NAMES)) and "→" not in line]
    assert all(len(line) <= width for line in table if "output" not in line)


def words(topology: Topology, shown: PlanPreview | None, now: Now = NOTHING) -> str:
    return topology_content(topology, shown, now, NAMES, 76).plain


def test_it_says_mac_by_mac_what_is_sent_and_seen() -> None:
    text = words("forward", preview("forward", 16, 8, 8))
    for row in (
        "studio      0–3      10.2 KB      token ids",
        "mbp         4–5      10.2 KB      hidden states of layers 4–5",
        "mini        6–7      4 B          token ids, logits",
        "Speed        16.7 tok/s  (measured)",
        "First token  about 3.0 s per 1k prompt tokens",
        "Load time    about 40 s",
        "Enter: load this way",
    ):
        assert row in text
    ranks = words("tensor", preview("tensor", 16, 8, 8))
    for row in (
        "studio rank 0, output + mbp rank 1 + mini rank 2",
        "Mac         rank     sends/token  sees",
        "studio      0        4 B          token ids, logits",
        "mini        2        4 B          token ids",
        "Every Mac can read the text",
    ):
        assert row in ranks
    alone = words("single", preview("single", 16, 8, 8))
    assert "mbp         –        –            nothing" in alone


@pytest.mark.parametrize(
    ("rdma", "rtt_s", "all_reduce_share", "said"),
    [
        pytest.param(False, 0.004, "≈ 208 ms of each token's", "slower than studio alone: about 4.4", id="Wi-Fi"),
        pytest.param(False, 0.0005, "≈ 68.2 ms of each token's", "slower than studio alone: about 11.5", id="wire"),
        pytest.param(True, 0.0005, "≈ 4.2 ms of each token's", "Faster than this Mac alone: about 44.2", id="RDMA"),
    ],
)
def test_ranks_are_foretold_by_how_often_they_add_up_and_over_what(
    rdma: bool, rtt_s: float, all_reduce_share: str, said: str
) -> None:
    made = preview("tensor", 64, 64, rdma=rdma)
    assert made.plan
    assert made.plan.parallelism
    macs = MacSpeeds(dict.fromkeys(NAMES, "M2 Max"), lambda _one, _other: rtt_s, {})
    told = forecast(plan_work_of(made.plan, LAYOUT, made.hop_bytes, made.total_bytes), macs)
    assert told
    _, cost, beside_one = forecast_lines(told)
    assert cost.startswith(f"Exchanging sums takes {all_reduce_share}")
    assert f"{said} instead of 29.1 tokens/s." in beside_one
    assert ("80 reduces per token take" in beside_one) is not rdma
    made = replace(made, forecast=told)
    model = ModelChoice(
        name="m",
        path="/",
        model_type="",
        layers=8,
        total_bytes=8,
        quantization="",
        context_max=1,
        preview=made,
    )
    for shown in (fit_content(model, UiState(), 90).plain, words("tensor", made)):
        assert all_reduce_share in shown
        assert beside_one in shown
        assert "Every layer split: your choice" in shown
        assert EVERY_RANK_SEES in shown
        assert (ON_THE_CABLE in shown) is rdma
    assert "F4" not in fit_content(replace(model, loaded=True), UiState(), 90).plain, "ranks have no boundaries"


def test_a_guess_is_called_one_and_advice_is_given() -> None:
    guess = Forecast(stages_s=(0.1,), hops_s=(), prompt_s=1, load_s=1, measured=False, advice="studio alone is faster.")
    shown = preview("private", 16, 8, forecast=guess)
    assert "(estimated)" in words("private", shown)
    assert "▲ studio alone is faster." in words("private", shown)
    assert row_content("private", shown, NOTHING, 44).plain.rstrip().endswith("≈ 10.0 tok/s")
    silent = preview("private", 16, 8, forecast=None)
    assert "Speed" not in words("private", silent)
    assert "tok/s" not in row_content("private", silent, NOTHING, 44).plain


@pytest.mark.parametrize(
    ("shown", "row", "said"),
    [
        pytest.param(None, "◌ private  planning", "Planning…", id="asking"),
        pytest.param(preview("private", 16), "✗ private  not possible", "→ Pair another Mac", id="one Mac"),
        pytest.param(preview("private", 4, 3), "✗ private  not possible", "GB more on", id="too large"),
        pytest.param(
            preview("private", 16, 8, missing_on=("mbp",), missing_bytes=5_000_000_000),
            "✓ private  2 Macs",
            "5.0 GB are copied to mbp first",
            id="no files",
        ),
        pytest.param(
            PlanPreview(problem=Problem(kind="NodeError", what="It is gone.", fix="Start it.")),
            "✗ private  not possible",
            "✗ It is gone.\n→ Start it.",
            id="no node",
        ),
        pytest.param(preview("private", 16, 8), "✓ private  2 Macs", "Enter: load this way", id="fits"),
    ],
)
def test_what_can_be_loaded_and_why_not(shown: PlanPreview | None, row: str, said: str) -> None:
    assert row_content("private", shown, NOTHING, 44).plain.startswith(row)
    assert said in words("private", shown)


def test_what_is_loaded_is_marked_and_a_reload_says_what_it_stops() -> None:
    shown, now = preview("private", 16, 8), Now(plan("private", 16, 8), LOADED, 2)
    assert row_content("private", shown, now, 44).plain.startswith("● private  loaded")
    assert row_content("forward", shown, now, 44).plain.startswith("✓ forward  2 Macs")
    assert words("private", shown, now).endswith("● loaded")
    assert "asks first" in words("forward", preview("forward", 16, 8), now)
    loading = Now(now.plan, Mark("◌", "loading", WARN), 0)
    assert row_content("private", None, loading, 44).plain.startswith("◌ private  loading")
    assert "stopped" not in loading_words(plan("forward", 16, 8), 0)
    assert "The running answer stops." in loading_words(plan("forward", 16, 8), 1)
    assert "2 running answers stop." in loading_words(plan("forward", 16, 8), 2)


def test_the_title_says_how_far_the_node_is() -> None:
    assert title_content("m", 1, 4, 60).plain.rstrip().endswith("planning · 1 of 4")
    assert title_content("m", 4, 4, 60).plain.rstrip() == " Topology · m"
    assert title_content("", 0, 4, 60).plain.rstrip() == " Topology"
