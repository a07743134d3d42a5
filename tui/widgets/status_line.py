"""The status line (Macs, model, speed, slowest hop, trust, readiness), and the line above the zoomed chat."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from tui.state.bars import spark
from tui.state.format import BAD, DIM, GOOD, TRUST_MARKS, WARN, duration, fit, is_ready, plural
from tui.state.hops import ring_of
from tui.state.plan_words import cable_mark
from tui.state.recovery import lost_name, readiness
from tui.state.state import UiState, strangers
from tui.widgets.chat_log import chat_words
from tui.widgets.prompt import context_words

_LEAST = 12  # cells for " Chat" and the separators


def status_content(state: UiState, width: int, note: str = "") -> Content:
    """The status line: the least important parts are left out first; at less than 100 cells they are shorter."""
    wide = width >= 100
    right = _right(state, wide)
    now, running = state.snapshot, len(state.snapshot.batch.running)
    model = f"{now.chat_model} · led by {now.host.led_by}" if now.host else now.chat_model
    must = [_macs(state, wide), Content(model) if model else Content.styled("no model", DIM)]
    rows = Content(plural(running, "row") if running > 1 else "")
    aside = Content(_not_paired(state)) if not wide else Content("")
    may = [rows, _speed(state, wide), _hop(state, wide), aside, Content.styled(note, DIM)]
    left = Content.assemble((" macluster ", "bold"), " ") if wide else Content(" ")
    bar = Content.styled(" │ ", DIM)
    for i, part in enumerate([*must, *may]):
        grown = left + (bar if i else "") + part
        if part.plain and grown.cell_length + right.cell_length + 3 <= width:
            left = grown
    space = width - left.cell_length - right.cell_length - 1
    return Content.assemble(left, " " * max(1, space), right)


def _macs(state: UiState, wide: bool) -> Content:
    peers = state.snapshot.peers
    ready = sum(map(is_ready, peers))
    if len(peers) <= 1 and not state.departures:
        return Content.assemble(("○ ", WARN), "no other Macs yet" if wide else "1 Mac")
    others = len(strangers(state))  # a neighbour's Mac is no concern
    ours = len(peers) - others
    glyph, style = ("●", GOOD) if ready == ours and not state.departures else ("▲", WARN)
    whole = ours + len(state.departures)
    macs = f"{ready} of {plural(whole, 'Mac')}" if wide else f"{ready}/{plural(whole, 'Mac')}"
    macs += f" · {_not_paired(state)}" if others and wide else ""
    if lost := lost_name(state.snapshot):
        return Content.assemble((f"✗ {fit(lost, 16).rstrip()} offline", BAD), f" · {macs}" if wide else "")
    return Content.assemble((glyph + " ", style), macs)


def _not_paired(state: UiState) -> str:
    others = len(strangers(state))
    return f"{others} not paired" if others else ""


def _speed(state: UiState, wide: bool) -> Content:
    answers = [t for t in state.turns if t.role == "assistant" and t.rate is not None]
    last = state.snapshot.last_done
    rate = answers[-1].rate if answers else last.decode_tokens_per_s if last is not None else None
    if rate is None:
        return Content("")
    line = spark(state.rates[-6:], max(state.rates)) if state.rates and wide else ""
    return Content.assemble(f"{rate:.1f} tok/s", (f" {line}" if line else "", "$primary"))


def _hop(state: UiState, wide: bool) -> Content:
    ring = ring_of(state)
    if ring.longest_s is None:
        return Content("")
    word = "hop" if not wide else "slowest hop" if ring.slowest else "hops up to"
    return Content(f"{word} {duration(ring.longest_s)}")


def _right(state: UiState, wide: bool) -> Content:
    trust = state.snapshot.trust
    mark = TRUST_MARKS[trust.level]
    is_alone = len(state.snapshot.peers) - len(strangers(state)) == 1
    # a narrow line needs the room for the readiness
    is_told = trust.weakest and wide and trust.level != "paired"
    weakest = f" · least trusted: {fit(trust.weakest, 32).rstrip()}" if is_told else ""
    end = Content.assemble((" · ", DIM), readiness_words(state))
    if plain := cable_mark(state.snapshot.used_plan):
        words = f" · {plain.glyph} {plain.word if wide else 'plain cable'}"
        end = Content.assemble((words, plain.style), end)
    return Content.assemble((f"{mark.glyph} {'this Mac only' if is_alone else mark.word}", mark.style), weakest, end)


def readiness_words(state: UiState) -> tuple[str, str]:
    snapshot = state.snapshot
    if not state.attached:
        return ("✗ not running", BAD) if state.offline else ("◌ connecting", WARN)
    if word := readiness(state):
        return word
    match snapshot.chat_status:
        case "ready":
            return _work_words(state)
        case "loading":
            done, total = (sum(getattr(s, f) for s in snapshot.stages) for f in ("done_bytes", "total_bytes"))
            return f"◌ loading {100 * done // total} %" if total else "◌ loading", WARN
        case "broken":
            return "✗ broken", BAD
        case _:
            return "○ idle", DIM


def _work_words(state: UiState) -> tuple[str, str]:
    """The work of a ready model. Rows are reported twice a second, tokens at once."""
    answer, rows = state.answer, state.snapshot.batch.rows
    if (answer is not None and answer.first_at is not None) or any(row.state == "writing" for row in rows):
        return "● writing", GOOD
    if answer is not None or state.snapshot.running:
        return "◌ reading", WARN
    return ("● serving" if state.snapshot.is_answering else "● ready"), GOOD


def title_content(state: UiState, width: int) -> Content:
    """Model, Macs, options, context and readiness."""
    plan, words = state.snapshot.used_plan, chat_words(state)
    if plan is not None:
        words.insert(1, plural(len(plan.stages), "Mac"))
    now, style = readiness_words(state)
    context = fit(context_words(state), width - cell_len(now) - _LEAST).rstrip()
    right = Content.assemble((f" {context} · " if context else " ", DIM), (f"{now} ", style))
    left = Content(fit(" " + " · ".join(["Chat", *words]), width - right.cell_length)).stylize("bold", 0, 5)
    return left + right
