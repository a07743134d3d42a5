"""Texts about disks with a model, running transfers, and the next load."""

from __future__ import annotations

import msgspec
import pytest
from rich.cells import cell_len

from core.errors import UsageError
from core.events import Peer, Snapshot, Stage, StageState, Transfer
from core.node.disks import transfer_progress
from core.node.disks.transfer_progress import QueuedTransfer, TransferProgress
from core.requests.plans import Forecast, LoadRequest, ModelChoice, PlanPreview
from core.settings import GB
from tests.support.screen_events import PLAN
from tui.state.disks import comes_here, copies_of, disk_words, limit_of, names_of, transfer_words, with_coming
from tui.state.format import clock
from tui.state.load_options import (
    contexts,
    download_of,
    in_topology,
    with_bits,
    with_context,
    with_parallelism,
    with_topology,
)
from tui.state.state import UiState, fold
from tui.widgets.fit_preview import fit_content, layer_cells, map_lines, progress_content
from tui.widgets.model_list import arranged, fit_mark, head_content, row_content

PEERS = tuple(
    Peer(device_id=n.upper(), name=n, trust="paired", state="connected", is_self=n == "a", budget_bytes=100)
    for n in ("a", "b", "c")
)
NOW = Snapshot(peers=PEERS)
PRINT = "f" * 64


def choice(held_by: str = "A", *, path: str = "/m", **fields: object) -> ModelChoice:
    base = ModelChoice(
        name="owner/model-4bit",
        path=path,
        model_type="llama",
        layers=6,
        total_bytes=40 * GB,
        quantization="4-bit",
        context_max=131_072,
        fingerprint=PRINT,
        held_by=tuple(held_by),
        preview=PlanPreview(plan=PLAN),
    )
    return msgspec.structs.replace(base, **fields)


def test_another_download_is_not_asked_about_while_one_comes_here() -> None:
    own = Snapshot(peers=(Peer(device_id="A", name="a", is_self=True),))
    cases = (("A", "running", True), ("A", "paused", False), ("A", "failed", False), ("B", "running", False))
    for mac, state, busy in cases:
        assert comes_here(msgspec.structs.replace(own, transfers=(coming(mac, state=state),))) is busy


def coming(mac: str, **fields: object) -> Transfer:
    base = Transfer(model="owner/model-4bit", fingerprint=PRINT, mac=mac, source="A", state="running", total=4 * GB)
    return msgspec.structs.replace(base, **fields)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        pytest.param(choice("ABC"), "yes", id="everywhere"),
        pytest.param(choice(""), "yes", id="here, nobody told"),
        pytest.param(choice("AB"), "on 2 of 3", id="some"),
        pytest.param(choice("B", path=""), "on b", id="elsewhere"),
        pytest.param(choice("BC", path=""), "on 2 of 3", id="elsewhere twice"),
        pytest.param(choice("", layers=0), "partial", id="broken"),
    ],
)
def test_which_disks_have_it(model: ModelChoice, words: str) -> None:
    assert disk_words(model, NOW) == words


def test_what_is_on_its_way_is_told_by_bytes_and_who_gets_it() -> None:
    half = coming("B", done=2 * GB, bytes_per_s=1e8)
    now = msgspec.structs.replace(NOW, transfers=(half, coming("C")))
    assert disk_words(choice(), now) == "↑ 25 %"
    assert fit_mark(choice(), now).word == "copying out, about 20 s left"
    assert transfer_words(half, now, 60)[1].endswith("2.0/4.0 GB · 100.0 MB/s · about 20 s left")
    assert "left" not in transfer_words(coming("C"), now, 60)[1], "no figure is invented"
    assert len(with_coming([choice()], now)) == 1
    here = msgspec.structs.replace(NOW, transfers=(coming("A", model="x/y", fingerprint="", source="", done=GB),))
    assert [c.name for c in with_coming([choice()], here)] == ["owner/model-4bit", "x/y"]
    assert disk_words(with_coming([], here)[0], here) == "↓ 25 %"


@pytest.mark.parametrize(
    ("model", "names"),
    [
        pytest.param(choice("A"), "b and c", id="to the others"),
        pytest.param(choice("AB"), "c", id="to the last"),
        pytest.param(choice("B", path=""), "this Mac", id="here first"),
        pytest.param(choice("ABC"), None, id="to nobody"),
        pytest.param(choice("", layers=0), None, id="broken"),
        pytest.param(choice("", layers_on=(("A", ((0, 4),)), ("B", ((3, 6),)))), "this Mac", id="together they do"),
        pytest.param(choice("", layers_on=(("A", ((0, 4),)), ("B", ((5, 6),)))), None, id="a layer is nowhere"),
    ],
)
def test_who_could_be_given_it(model: ModelChoice, names: str | None) -> None:
    copies = copies_of(model, NOW)
    assert (copies.names if copies else None) == names


def test_where_which_layers_lie_is_a_map() -> None:
    parted = choice("A", layers_on=(("B", ((0, 2), (4, 6))), ("C", ())))
    assert [line.plain for line in map_lines(parted, NOW, 40)] == [
        "Layers on disk",
        "this Mac    ████████████ all",
        "b           ▓▓▓▓▁▁▁▁▓▓▓▓ 0–1, 4–5",
        "c           ▁▁▁▁▁▁▁▁▁▁▁▁ none",
    ]
    assert "b           ▓" in fit_content(parted, UiState(snapshot=NOW), 60).plain
    assert not map_lines(choice("AB"), NOW, 60)
    now = msgspec.structs.replace(NOW, transfers=(coming("C", done=GB),))
    assert map_lines(choice("AB"), now, 40)[-1].plain == "c           ▁▁▁▁▁▁▁▁▁▁▁▁ none · 25 % copied"


@pytest.mark.parametrize(
    ("ranges", "layers", "cells"),
    [
        pytest.param(((0, 80),), 80, "########", id="all"),
        pytest.param(((20, 40),), 80, "..##....", id="a quarter"),
        pytest.param(((0, 5), (75, 80)), 80, "........", id="less than a cell"),
        pytest.param(((0, 1), (3, 4)), 4, "##....##", id="fewer layers than cells"),
        pytest.param((), 4, "........", id="none"),
    ],
)
def test_a_cell_stands_for_layers_that_are_all_there(
    ranges: tuple[tuple[int, int], ...], layers: int, cells: str
) -> None:
    assert "".join(".#"[cell] for cell in layer_cells(ranges, layers, 8)) == cells


@pytest.mark.parametrize(
    ("mac", "more", "words"),
    [
        pytest.param("A", {"source": ""}, "downloading from the hub", id="the hub, here"),
        pytest.param("B", {"source": ""}, "downloading from the hub to b", id="the hub, a member"),
        pytest.param("B", {}, "copying to b", id="from here"),
        pytest.param("B", {"source": "C"}, "copying to b from c", id="between others"),
        pytest.param("A", {"source": "C"}, "copying to this Mac from c", id="to here"),
    ],
)
def test_what_comes_says_where_from(mac: str, more: dict[str, object], words: str) -> None:
    assert transfer_words(coming(mac, **more), NOW, 80)[0] == words


def test_a_download_says_until_when_the_hub_takes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[Transfer]()
    progress = TransferProgress(QueuedTransfer(first=coming("A", source="")), lambda transfer, _: told.append(transfer))
    progress.wait(1000.0)
    assert transfer_words(told[-1], NOW, 80)[1] == f"the hub takes no request before {clock(1000.0, seconds=True)}"
    monkeypatch.setattr(transfer_progress, "time", lambda: 1001.0)
    progress.count("running", GB, 4 * GB)
    assert "1.0/4.0 GB" in transfer_words(told[-1], NOW, 80)[1]


def test_what_is_paused_or_limited_says_so() -> None:
    slow = coming("B", done=GB, bytes_per_s=1e7, limit_bytes_per_s=10_000_000)
    assert "1.0/4.0 GB · 10.0 MB/s (limit 10 MB/s) · about 5 min" in transfer_words(slow, NOW, 80)[1]
    paused = msgspec.structs.replace(slow, state="paused", bytes_per_s=0.0)
    assert transfer_words(paused, NOW, 80)[1].endswith("1.0/4.0 GB · paused (limit 10 MB/s)")
    now = msgspec.structs.replace(NOW, transfers=(paused,))
    shown = fit_content(choice(), UiState(snapshot=now), 80).plain
    assert shown.index("Space: resume") < shown.index(PLAN.stages[0].peer + " "), "before what may need scrolling"
    assert fit_mark(choice(), now).word == "paused"


@pytest.mark.parametrize(("typed", "limit"), [("10", 10_000_000), ("0.5", 500_000), ("0", 0)])
def test_a_limit_is_typed_in_megabytes(typed: str, limit: int) -> None:
    assert limit_of(typed) == limit


@pytest.mark.parametrize("typed", ["fast", "-1", "nan", "1e9", ""])
def test_what_is_no_limit_is_refused(typed: str) -> None:
    with pytest.raises(UsageError):
        limit_of(typed)


def test_a_model_that_a_mac_of_the_plan_lacks_is_copied_there_first() -> None:
    lacking = choice(preview=PlanPreview(plan=PLAN, missing_on=("B",), missing_bytes=3 * GB))
    mark = fit_mark(lacking, NOW)
    assert (mark.glyph, mark.word) == ("↓", "copies 3.0 GB")
    assert [c.preview.missing_on for c in arranged((lacking, choice("ABC")), "", "best fit")] == [(), ("B",)]
    shown = fit_content(lacking, UiState(snapshot=NOW), 60).plain
    assert "Loading first copies 3.0 GB to b; d copies the whole model." in shown
    assert "Enter: load" in shown
    stage = Stage(device_id="A", peer="a", start=0, stop=6, weight_bytes=90 * GB, kv_bytes=0, budget_bytes=17 * GB)
    draft = msgspec.structs.replace(PLAN, stages=(stage,))
    short = choice(preview=PlanPreview(draft=draft))
    assert fit_mark(short, NOW).word == "needs 73 GB more"
    assert arranged((short, choice()), "", "size", fitting=True) == (choice(),)


@pytest.mark.parametrize("width", [36, 58, 76])
def test_every_row_keeps_to_its_width(width: int) -> None:
    now = msgspec.structs.replace(NOW, transfers=(coming("B", done=GB, bytes_per_s=1.0),))
    for model in (choice(), choice(name="模型" * 40), choice("B", path=""), choice(layers=0, total_bytes=0)):
        assert cell_len(row_content(model, now, width).plain) <= width
    assert cell_len(head_content(width).plain) <= width


def test_a_forecast_says_where_it_comes_from_and_none_says_nothing() -> None:
    forecast = Forecast(stages_s=(0.1,), hops_s=(0.025,), prompt_s=3, load_s=40, measured=True, advice="Use one Mac.")
    shown = fit_content(choice(preview=PlanPreview(plan=PLAN, forecast=forecast)), UiState(snapshot=NOW), 60).plain
    assert "about 8.0 tok/s (measured)" in shown
    assert "▲ Use one Mac." in shown
    guessed = msgspec.structs.replace(forecast, measured=False, advice="")
    shown = fit_content(choice(preview=PlanPreview(plan=PLAN, forecast=guessed)), UiState(snapshot=NOW), 60).plain
    assert "(estimated)" in shown
    assert "▲" not in shown
    assert "tok/s" not in fit_content(choice(), UiState(snapshot=NOW), 60).plain


def test_how_it_is_loaded_is_chosen_in_steps() -> None:
    model = choice()
    request = LoadRequest(model=model.name)
    assert (request.context, contexts(model)[0], contexts(model)[-1]) == (None, 2048, 131_072)
    assert with_context(request, model, 1).context == 2 * PLAN.context
    assert with_context(with_context(request, model, -1), model, -1).context == 2048
    assert with_context(msgspec.structs.replace(request, context=131_072), model, 1).context == 131_072
    assert contexts(choice(context_max=1000)) == (1000,)
    eight = with_bits(request, model)
    four = with_bits(eight, model)
    assert [b.kv_bits for b in (eight, four, with_bits(four, model))] == [8, 4, None]
    assert with_topology(request, model).topology == "forward"
    best = with_parallelism(with_topology(request, model))
    assert (best.parallelism, best.topology) == ("auto", None)
    tp = msgspec.structs.replace(with_parallelism(best), rdma=True)
    assert (tp.parallelism, with_parallelism(tp).parallelism, with_parallelism(tp).rdma) == ("tp", "pp", False)
    assert (in_topology(tp, "tensor").rdma, in_topology(tp, "tensor").parallelism) == (True, None)
    assert not in_topology(tp, "forward").rdma
    broken = choice(preview=PlanPreview())
    shown = fit_content(broken, UiState(snapshot=NOW), 60, with_bits(request, model)).plain
    assert "context 128k · cache 8-bit" in shown


@pytest.mark.parametrize("text", ["nope", "a/b/c", "../x", "a/..", "", "a b/c", "-a/b"])
def test_what_is_no_repository_is_told_so(text: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a repository"):
        download_of(text)


def test_the_address_of_a_page_is_a_name_too() -> None:
    assert download_of("https://huggingface.co/acme/toy/").repo == "acme/toy"


def test_loading_says_how_long_it_will_take_once_that_can_be_known() -> None:
    plan = msgspec.structs.replace(PLAN, stages=PLAN.stages[:1])
    loads = StageState(device_id=plan.stages[0].device_id, status="loading", done_bytes=GB, total_bytes=4 * GB)
    state = fold(UiState(snapshot=Snapshot(plan=plan, plan_status="loading")), loads, 1.0)
    assert "left" not in progress_content(state, 70).plain
    state = fold(state, msgspec.structs.replace(loads, done_bytes=2 * GB), 2.0)
    shown = progress_content(state, 90).plain
    assert "50 % · about 2 s left" in shown
    assert "▇▇▇▇▇▇▇▇▁▁▁▁▁▁▁▁ 2.0/4.0 GB · loading · 1.0 GB/s · about 2 s left" in shown
    narrow = progress_content(state, 56).plain
    assert max(map(cell_len, narrow.splitlines())) <= 56
    assert "1.0 GB/s" in narrow
    state = fold(state, msgspec.structs.replace(loads, status="ready"), 3.0)
    assert "4.0/4.0 GB · ready" in progress_content(state, 70).plain


def test_macs_are_named_as_people_do() -> None:
    assert names_of(NOW, "ABC") == "this Mac, b and c"
