"""Texts about rows, lanes and the queue, without a node."""

from __future__ import annotations

import msgspec
import pytest
from rich.cells import cell_len

from core.events import ApiClient, ApiServed, Batch, BatchLane, BatchRow, Plan, RequestDone, RequestStarted, Snapshot
from tests.support.screen_events import PLAN
from tui.cli.status import status_facts, status_lines
from tui.screens.api import title_content as api_title
from tui.screens.batch import empty_content, ring_content, title_content
from tui.state import state
from tui.state.row_words import summary, why_they_wait
from tui.state.state import UiState
from tui.widgets.row_list import head_content, rows_content
from tui.widgets.status_line import status_content

WRITING = BatchRow(
    request_id="a" * 32,
    state="writing",
    prompt_tokens=50,
    read=49,
    written=412,
    max_tokens=900,
    lane=1,
    tokens_per_s=18.0,
)
READING = BatchRow(request_id="b" * 32, state="reading", prompt_tokens=2048, read=512, reused=300, max_tokens=100)
WAITING = BatchRow(request_id="c" * 32, prompt_tokens=120, max_tokens=200)
LAST = BatchRow(request_id="d" * 32, prompt_tokens=4000, max_tokens=96)
BATCH = Batch(
    rows=(WRITING, READING, WAITING, LAST),
    lanes=(BatchLane(rows=1, in_flight=True), BatchLane(rows=0)),
    chunks=2,
    used_tokens=812,
    reserved_tokens=3098,
    parked_tokens=300,
)


def now(batch: Batch = BATCH, plan: Plan | None = PLAN) -> Snapshot:
    return Snapshot(plan=plan, plan_status="ready" if plan else "none", batch=batch)


@pytest.mark.parametrize("width", [pytest.param(n, id=str(n)) for n in (58, 76, 116)])
def test_every_row_is_as_wide_as_the_list_and_says_its_state_in_words(width: int) -> None:
    lines = [head_content(width), *rows_content(BATCH.rows, "b" * 32, width)]
    assert {cell_len(line.plain) for line in lines} == {width}
    words = [line.plain[:9] for line in lines[1:]]
    assert words == ["● writing", "◌ reading", "○ queued ", "○ queued "]


def test_a_row_says_how_far_it_is_and_whose_it_is() -> None:
    writing, reading, waiting, last = (line.plain for line in rows_content(BATCH.rows, "b" * 32, 90))
    assert all(part in writing for part in ("aaaaaaaa ", "other", "412/900 written · prompt 50", "18.0    1"))
    assert all(part in reading for part in ("this chat", "512/2048 ▇▇▁▁▁▁▁▁ · 300 reused", "–    –"))
    assert "1 of 2 in the queue · prompt 120" in waiting
    assert "2 of 2 in the queue · prompt 4.0k" in last
    narrow = rows_content((msgspec.structs.replace(WAITING, written=30),), "", 76)[0].plain
    assert "1 of 1 in the queue · prompt 120 " in narrow, "what doesn't fit is left out, not cut"


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        pytest.param(Batch(), "0 of 8 rows · context 0/4k", id="nothing"),
        pytest.param(BATCH, "2 of 8 rows · 1 lane in flight · 2 queued · context 812/4k (cached 300)", id="all"),
        pytest.param(Batch(rows=(WAITING,)), "0 of 8 rows · 1 queued · context 0/4k", id="one waits"),
    ],
)
def test_the_top_line_fits_both_sizes(batch: Batch, says: str) -> None:
    assert summary(batch, PLAN) == says
    for width in (80, 120):
        line = title_content(now(batch), width).plain
        assert says in line
        assert cell_len(line) == width


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        pytest.param(now(Batch(rows=(WRITING,))), "", id="nobody waits"),
        pytest.param(now(plan=None), "", id="no plan"),
        pytest.param(now(), "", id="about to be admitted"),
        pytest.param(
            now(Batch(rows=(WRITING, LAST), reserved_tokens=962)), "4096 tokens of memory; 3134 are free", id="memory"
        ),
        pytest.param(now(plan=msgspec.structs.replace(PLAN, rows=2)), "All 2 rows are busy", id="rows"),
        pytest.param(msgspec.structs.replace(now(), plan_status="broken"), "The model isn't ready", id="broken"),
    ],
)
def test_the_queue_knows_what_it_waits_for(snapshot: Snapshot, why: str) -> None:
    said = why_they_wait(snapshot)
    assert why in said if why else said == ""


def test_only_what_is_known_is_drawn_of_the_ring() -> None:
    drawn = ring_content(now(), 76).plain
    assert drawn.startswith("a → b → a\n")
    assert "lane 1  ● in flight ▮ 1 row " in drawn
    assert "lane 2  ○ at head  0 rows" in drawn
    assert "prompts ● in flight ▮▮ 2 parts" in drawn
    many = Batch(lanes=tuple(BatchLane(rows=n) for n in range(16)))
    assert max(map(cell_len, ring_content(now(many), 76).plain.split("\n"))) <= 76


def test_an_empty_screen_says_what_is_going_on_and_what_to_do() -> None:
    assert "retrying" in empty_content(now(), attached=False).plain
    assert "Ctrl+O" in empty_content(Snapshot(), attached=True).plain
    assert "m isn't ready" in empty_content(msgspec.structs.replace(now(), plan_status="loading"), attached=True).plain
    assert "300 tokens of earlier chats" in empty_content(now(Batch(parked_tokens=300)), attached=True).plain


def test_the_status_line_counts_rows_where_there_are_several() -> None:
    for width in (80, 120):
        assert "2 rows" in status_content(UiState(snapshot=now(), attached=True), width).plain
        one = Batch(rows=(WRITING, WAITING))
        assert "row" not in status_content(UiState(snapshot=now(one), attached=True), width).plain


def test_the_status_line_says_reading_until_an_answer_is_written() -> None:
    for rows, word in (((READING, WAITING), "◌ reading"), ((READING, WRITING), "● writing"), ((), "● ready")):
        told = msgspec.structs.replace(now(Batch(rows=rows)), running=tuple(row.request_id for row in rows))
        assert status_content(UiState(snapshot=told, attached=True), 80).plain.endswith(word)


def test_what_starts_and_what_ends_is_on_screen_at_once() -> None:
    seen = UiState(snapshot=now(Batch()), attached=True)
    seen = state.fold(seen, RequestStarted(request_id="e" * 32, prompt_tokens=7), 1.0)
    assert seen.snapshot.batch.queue == (BatchRow(request_id="e" * 32, prompt_tokens=7),)
    ended = RequestDone(request_id="e" * 32, finish_reason="stop", prompt_tokens=7, tokens=1)
    assert state.fold(seen, ended, 2.0).snapshot.batch == Batch()


def test_status_tells_rows_lanes_and_queue_and_nothing_without_a_plan() -> None:
    lines = "\n".join(status_lines(now()))
    assert "Rows: 2 of 8 rows · 1 lane in flight · 2 queued · context 812/4k (cached 300)" in lines
    assert "aaaaaaaa  writing      50    49      412     1" in lines
    facts = status_facts(now())["batch"]
    assert (facts["rows_max"], facts["context_tokens"], facts["waiting"]) == (8, 4096, 2)
    assert facts["rows"][1]["reused"] == 300
    assert facts["lanes"][0] == {"rows": 1, "in_flight": True}
    assert status_facts(now(plan=None))["batch"] is None
    assert "Rows" not in "\n".join(status_lines(now(plan=None)))


def test_the_title_of_other_programs_counts_what_waits_for_a_row_though_it_has_none_to_be_listed() -> None:
    row = msgspec.structs.replace(WRITING, client="laptop")
    full, nobody = Batch(rows=(row,) * PLAN.rows), Batch()
    for batch, asking, said in (
        (full, PLAN.rows + 2, ", 2 queued "),
        (full, PLAN.rows, f" {PLAN.rows} requests "),
        (nobody, 1, " 1 request "),
    ):
        clients = (ApiClient(name="x", asking=asking),)
        told = msgspec.structs.replace(now(batch), api=ApiServed(url="u"), clients=clients)
        assert api_title(told, 80).plain.endswith(said)
