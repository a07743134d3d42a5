"""Numbers, bars, Markdown and the lines drawn from them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content

from core.errors import Problem
from core.events import GroupKind, LogLine, Parallelism, Peer, PlanStatus, Snapshot, StageState, TrustChanged
from core.requests.plans import ModelChoice, PlanPreview
from core.text import Clean
from tests.support.screen_events import PLAN, asked, token
from tui.cli.status import trust_line
from tui.control import clipboard
from tui.screens.base import layout_for
from tui.state import bars, conversation, format, plan_words, state
from tui.state.hops import ring_of
from tui.state.logs import long_lines, short_lines
from tui.state.state import UiState
from tui.state.turns import Turn
from tui.widgets import markdown
from tui.widgets.banner import problem_content
from tui.widgets.chat_log import empty_content
from tui.widgets.cluster_strip import strip_content
from tui.widgets.fit_preview import fit_content
from tui.widgets.hop_table import hops_content
from tui.widgets.key_bar import Key, keys_content
from tui.widgets.markdown_chunks import NOTHING, Chunk, grown
from tui.widgets.message_view import foot_content
from tui.widgets.model_list import arranged, row_content
from tui.widgets.peer_pane import peers_content
from tui.widgets.prompt import context_words, hint_words
from tui.widgets.split_pane import split_content
from tui.widgets.status_line import status_content, title_content

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.00004, "0.04 ms"), (0.0004, "0.40 ms"), (0.0062, "6.2 ms"), (0.0999, "99.9 ms"), (0.123, "123 ms")),
        *((0.9999, "1.0 s"), (1.94, "1.9 s"), (2.5, "2.5 s"), (9.96, "10 s"), (23.2, "23 s"), (59.7, "1 min 0 s")),
        (125, "2 min 5 s"),
    ],
)
def test_durations_have_the_precision_that_counts(seconds: float, text: str) -> None:
    assert format.duration(seconds) == text


def test_counts_sizes_and_ranges() -> None:
    assert [format.count(n) for n in (812, 3100, 32_000)] == ["812", "3.1k", "32k"]
    assert [format.gigabytes(int(n * GB)) for n in (4.24, 118.0)] == ["4.2", "118"]
    assert [plan_words.layer_range(*r) for r in ((0, 35), (5, 6), (3, 3))] == ["0–34", "5", "–"]
    assert format.plural(1, "Mac") + format.plural(3, "Mac") == "1 Mac3 Macs"


@given(st.text(max_size=40), st.integers(0, 30))
def test_fit_is_exactly_as_wide_as_asked(text: str, width: int) -> None:
    clean = state.cleaned(text)
    assert cell_len(format.fit(clean, width)) == width


def test_fit_cuts_wide_characters_whole() -> None:
    assert format.fit("日本語日本語", 6) == "日本… "
    assert format.fit("6.2", 5, right=True) == "  6.2"


@given(st.lists(st.integers(1, 80), min_size=1, max_size=6), st.integers(8, 120))
def test_shares_fill_the_bar_and_leave_nobody_out(weights: list[int], width: int) -> None:
    cells = bars.shares(weights, width)
    assert sum(cells) == width
    assert min(cells) >= 1


def test_shares_are_in_proportion() -> None:
    assert bars.shares([35, 18, 11], 64) == [34, 18, 12]
    assert bars.shares([1, 1], 1) == [0, 0]


@pytest.mark.parametrize(("longest", "top"), [(0.0002, 0.001), (0.0062, 0.01), (0.011, 0.02), (0.02, 0.02), (1.2, 2.0)])
def test_scales_end_at_round_numbers(longest: float, top: float) -> None:
    assert bars.scale_top(longest) == pytest.approx(top)


def test_bars_share_one_scale() -> None:
    assert bars.spark([0.0004], 0.02) == "▁"
    assert bars.spark([0.02, 0.01, None], 0.02) == "█▅ "
    assert bars.gauge(1, 1000, 8) == "▇▁▁▁▁▁▁▁"
    assert bars.gauge(5, 0, 3) == "▁▁▁"
    assert bars.gauge(50, 10, 3) == "▇▇▇"


def test_columns_keep_their_height_while_they_move() -> None:
    samples = [(at, float(at)) for at in range(100, 160)]
    early = bars.columns(samples, 160.0, 60.0, 12)
    later = bars.columns(samples, 165.0, 60.0, 12)
    assert early[1:] == later[:-1]
    assert later[-1] is None


def test_layouts() -> None:
    sizes = {(120, 36): "wide", (100, 30): "wide", (80, 24): "narrow", (120, 24): "narrow", (60, 16): "narrow"}
    assert {size: layout_for(*size) for size in sizes} == sizes
    assert layout_for(59, 40) == layout_for(200, 15) == "small"


def test_markdown_becomes_one_piece() -> None:
    text = Clean("# Title\n\nsome **bold** and `code`\nnext line\n\n- a\n- b\n  - c\n\n| x | y |\n|-|-|\n| 1 | 2 |\n")
    lines = markdown.render(Chunk(text), 60).plain.split("\n")
    assert lines[0] == "Title"
    assert lines[2:4] == ["some bold and code", "next line"]
    assert lines[5:8] == ["• a", "• b", "  ▪ c"]
    assert lines[9].split() == ["x", "y"]


def test_lists_keep_their_margin_when_they_wrap() -> None:
    lines = markdown.render(Chunk(Clean("- " + "word " * 12)), 30).plain.split("\n")
    assert len(lines) > 1
    assert all(line.startswith("  ") for line in lines[1:])
    assert all(cell_len(line) <= 30 for line in lines)


def test_code_keeps_its_spaces_and_can_be_copied_alone() -> None:
    text = Clean("before\n\n```python\ndef f():\n    return 1\n```\n\nafter")
    assert "│     return 1" in markdown.render(Chunk(text), 60).plain
    assert markdown.code_blocks(text)[-1] == "def f():\n    return 1"
    assert markdown.code_blocks(Clean("none")) == []


@given(st.text(max_size=200), st.integers(10, 100))
def test_any_text_can_be_rendered(text: str, width: int) -> None:
    for piece in grown(NOTHING, state.cleaned(text, lines=True), 20):
        markdown.render(piece, width)


def test_markup_in_names_is_only_text() -> None:
    peer = Peer(device_id="A", name="[red]x[/]", trust="paired", state="connected", budget_bytes=10 * GB)
    now = UiState(snapshot=Snapshot(peers=(peer,)), attached=True)
    content = peers_content(now, 44)
    assert "[red]x[" in content.plain
    assert isinstance(content, Content)


def broad(width: int) -> dict[str, Content]:
    """Every text that is drawn for a width, with three Macs whose names are long and wide."""
    names = ("studio", "日本語の名前がとても長い", "mini-with-a-very-long-name")
    peers = tuple(
        Peer(
            device_id=n.upper() * 4,
            name=n,
            chip="M2 Ultra",
            trust="paired",
            state="connected",
            budget_bytes=118 * GB,
            used_bytes=18 * GB,
            rtt_s=0.004,
        )
        for n in names
    )
    stages = tuple(
        StageState(device_id=s.device_id, status="loading", done_bytes=4, total_bytes=9) for s in PLAN.stages
    )
    snapshot = Snapshot(
        peers=peers,
        plan=PLAN,
        plan_status="loading",
        stages=stages,
        trust=TrustChanged(level="paired", weakest=names[1]),
    )
    now = UiState(snapshot=snapshot, attached=True)
    return {
        "peers": peers_content(now, width),
        "split": split_content(now, width),
        "hops": hops_content(now, width, 100.0),
        "status": status_content(now, width, "demo: three simulated Macs"),
        "strip": strip_content(now, width, 100.0),
        "keys": keys_content({"a": Key("Enter", "Send"), "mc.quit": Key("Ctrl+Q", "Quit")}, width),
    }


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("word", ["● ready", "◌ reading", "● writing", "◌ loading 44 %"])
def test_whether_one_can_ask_is_said_however_narrow_it_is(word: str, width: int) -> None:
    plan = msgspec.structs.replace(PLAN, model="Llama-3.3-70B-Instruct-8bit-of-the-longest-name")
    stages = (StageState(device_id="A", status="loading", done_bytes=4, total_bytes=9),)
    status: PlanStatus = "loading" if "loading" in word else "ready"
    told = UiState(attached=True)
    if "reading" in word or "writing" in word:
        told = conversation.accepted(asked("why?"), "r1", 5, 100.0)
    if "writing" in word:
        told = state.fold(told, token(0, "so"), 101.0)
    now = msgspec.structs.replace(told, snapshot=Snapshot(plan=plan, plan_status=status, stages=stages), attached=True)
    full = (Turn(number=9, role="assistant", text=Clean("x"), at=1, prompt_tokens=PLAN.context), *now.turns)
    for line in (
        status_content(now, width),
        title_content(now, width),
        title_content(msgspec.structs.replace(now, turns=full), width),
    ):
        assert line.cell_length <= width
        assert line.plain.rstrip().endswith(word)


def test_the_way_back_stays_in_the_footer_however_many_keys_there_are() -> None:
    keys = {f"k{n}": Key("x", "Something") for n in range(9)} | {"mc.some-back": Key("Esc", "Back")}
    line = keys_content({**keys, "mc.help": Key("F1", "Help"), "mc.quit": Key("Ctrl+Q", "Quit")}, 60).plain
    assert line.startswith(" x Something")
    assert "Esc Back  F1 Help" in line


@pytest.mark.parametrize("width", [44, 56, 76, 80, 118, 200])
def test_nothing_is_drawn_wider_than_its_pane(width: int) -> None:
    for name, content in broad(width).items():
        if width >= 60 or name in ("peers", "split", "hops"):
            assert max(cell_len(line) for line in content.plain.split("\n")) <= width, name


def test_a_reverse_plan_is_drawn_in_the_order_of_its_layers() -> None:
    head, other = PLAN.stages
    stages = msgspec.structs.replace(head, start=3, stop=6), msgspec.structs.replace(other, start=0, stop=3)
    reverse = msgspec.structs.replace(PLAN, topology="reverse", stages=stages)
    now = UiState(snapshot=Snapshot(plan=reverse, plan_status="ready"))
    drawn = split_content(now, 60).plain.splitlines()
    assert [line.split()[1:4] for line in drawn[1:3]] == [["1", "b", "0–2"], ["2", "a", "(you)"]]
    assert drawn[3].startswith("reverse · ")
    drafted = UiState(snapshot=Snapshot(plan=msgspec.structs.replace(reverse, draft="small"), plan_status="ready"))
    assert "draft model small on a" in split_content(drafted, 60).plain
    assert [hop.label for hop in ring_of(now).hops] == ["a→b", "b→a"]


@pytest.mark.parametrize(
    ("group", "wide", "narrow"),
    [
        ("rdma", "▲ not encrypted on the cable", "▲ plain cable"),
        ("nccl", "▲ not encrypted", "▲ plain"),
        ("sealed", "", ""),
    ],
)
def test_the_badge_says_what_is_not_encrypted(group: GroupKind, wide: str, narrow: str) -> None:
    how = Parallelism(choice="tp", strategy="tp", reason="r", group=group)
    plan = msgspec.structs.replace(PLAN, topology="tensor", parallelism=how)
    trust = TrustChanged(level="paired", weakest="mini")
    lines = [status_content(UiState(snapshot=Snapshot(trust=trust, plan=plan)), width).plain for width in (120, 80)]
    for line, said in zip([*lines, trust_line(trust, plan)], (wide, narrow, wide.removeprefix("▲ ")), strict=True):
        assert "paired" in line
        assert said in line if said else "▲" not in line and "encrypted" not in line
        assert cell_len(line) <= 120
    assert "cable" not in trust_line(trust, None)


def test_states_are_words_too() -> None:
    now = UiState(snapshot=Snapshot(trust=TrustChanged(level="unpaired", weakest="mini")), attached=True)
    line = status_content(now, 120).plain
    assert "○ unpaired" in line
    assert "unpaired · least trusted: mini" in line
    assert "not running" in status_content(state.detached(now, Problem(kind="x", what="y")), 120).plain
    assert {format.TRUST_MARKS[t].word for t in ("blocked", "unpaired", "seen", "paired")} == {
        "blocked",
        "unpaired",
        "seen",
        "paired",
    }


def test_a_narrow_line_says_whether_one_can_ask_and_counts_strangers_apart() -> None:
    own, other = (Peer(device_id=n, name=n, trust="paired", state="connected", is_self=n == "a") for n in "ab")
    macs = (own, other, Peer(device_id="c", name="c", trust="unpaired"))
    trust = TrustChanged(level="paired", weakest="b")
    now = UiState(snapshot=Snapshot(peers=macs, plan=PLAN, plan_status="ready", trust=trust), attached=True)
    narrow, wide = (status_content(now, width).plain for width in (80, 120))
    assert ("● 2/2 Macs │" in narrow, "│ 1 not paired" in narrow, narrow.endswith("● ready")) == (True, True, True)
    assert ("● 2 of 2 Macs · 1 not paired" in wide, "least trusted" in wide) == (True, False)


def test_a_context_that_is_nearly_full_is_told_before_the_next_question() -> None:
    now = conversation.accepted(asked(), "r1", 3900, 1.0)
    room = UiState(snapshot=Snapshot(plan=PLAN), turns=now.turns)
    assert context_words(room) == "▲ context 3.9k/4k, nearly full: Ctrl+N starts a new chat"
    empty = UiState(snapshot=Snapshot(plan=PLAN))
    assert context_words(empty) == "context 0/4k"
    assert context_words(empty, 4000) == "context 0/4k"
    assert context_words(empty, 5200) == "▲ too long: about 5.2k tokens, context 4k"
    assert hint_words(empty, "context 0/4k", 60) == "Enter: send · Ctrl+J: new line · ↑: history · context 0/4k"
    assert hint_words(empty, "context 0/4k", 40) == "Enter: send · ↑: history · context 0/4k"


def test_an_empty_chat_says_what_to_do() -> None:
    assert "Ctrl+O" in empty_content(UiState(attached=True), "").plain
    assert empty_content(UiState(attached=True), "demo").plain.startswith("demo")
    assert "m is loaded" in empty_content(conversation.cleared(asked()), "").plain


def test_the_foot_says_why_an_answer_stopped() -> None:
    turn = conversation.refused(asked(), Problem(kind="Busy", what="The queue is full.")).turns[-1]
    assert foot_content(turn, 101.0).plain == "─── The queue is full. ───"
    assert "waiting" in foot_content(asked().turns[-1], 100.0).plain
    assert "→ wait" in problem_content(Problem(kind="Busy", what="full", fix="wait")).plain


def test_a_log_line_begins_with_what_happened_and_one_that_is_cut_says_so() -> None:
    line = LogLine(at=0.0, level="INFO", source="mini", text="The model was re-read after the fan had been cleaned.")
    (cut,) = short_lines(line, 40, wraps=False)
    assert re.fullmatch(r"The model was re-read after…  mini \d\d:\d\d", cut)
    assert cell_len(cut) == 40
    first, *rest = short_lines(line, 40, wraps=True)
    assert re.fullmatch(r"The model was re-read after +mini \d\d:\d\d", first)
    assert " ".join(row.strip() for row in rest) == "the fan had been cleaned."
    warned = msgspec.structs.replace(line, level="WARN")
    assert short_lines(warned, 80, wraps=False)[0].startswith("WARN The model")
    assert len(long_lines(line, 50)) > len(long_lines(line, 50, wraps=False)) == 1
    assert long_lines(line, 50, wraps=False)[0].endswith("…")


def choice(name: str, size: int, preview: PlanPreview, loaded: bool = False) -> ModelChoice:
    return ModelChoice(
        name=name,
        path="/",
        model_type="x",
        layers=6,
        total_bytes=size,
        quantization="4-bit",
        context_max=1,
        loaded=loaded,
        preview=preview,
    )


def test_models_are_ordered_by_fit_and_say_what_is_missing() -> None:
    problem = Problem(kind="DoesNotFit", what="needs 12 GB more on mini", fix="Free memory there.")
    choices = (
        choice("huge", 9 * GB, PlanPreview(problem=problem)),
        choice("big", 5 * GB, PlanPreview(plan=PLAN)),
        choice("now", 1 * GB, PlanPreview(plan=PLAN), loaded=True),
    )
    assert [c.name for c in arranged(choices, "", "best fit")] == ["now", "big", "huge"]
    assert [c.name for c in arranged(choices, "", "size")] == ["huge", "big", "now"]
    assert [c.name for c in arranged(choices, "B", "name")] == ["big"]
    preview = fit_content(choices[0], UiState(), 60).plain
    assert "needs 12 GB more on mini" in preview
    assert "tok/s" not in preview
    assert cell_len(row_content(choices[0], Snapshot(), 60).plain) < 60


@pytest.mark.parametrize(
    ("platform", "environ", "way"),
    [
        ("darwin", {}, "pbcopy"),
        ("darwin", {"SSH_CONNECTION": "x"}, "osc52"),
        ("darwin", {"SSH_CONNECTION": "x", "TERM_PROGRAM": "Apple_Terminal"}, "file"),
        ("linux", {"TERM": "xterm"}, "osc52"),
        ("linux", {"TERM": "linux"}, "file"),
    ],
)
def test_how_text_is_copied(platform: str, environ: dict[str, str], way: str) -> None:
    assert clipboard.way_for("text", platform, environ) == way
    assert clipboard.way_for("x" * 100_000, "linux", {"TERM": "xterm"}) == "file"


async def test_a_copy_that_becomes_a_file_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.platform", "linux")
    where = await clipboard.copy("secret", lambda text: None, tmp_path / "home")
    file = tmp_path / "home" / "copied.txt"
    assert str(file) in where
    assert file.read_text() == "secret"
    assert file.stat().st_mode & 0o077 == 0
