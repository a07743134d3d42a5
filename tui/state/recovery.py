"""Texts and choices while a plan that lost a Mac recovers. Pure."""

from __future__ import annotations

from textwrap import wrap
from typing import NamedTuple

from textual.content import Content

from core.events import Peer, Plan, Recovery, RecoveryChoice, Snapshot, Stage
from tui.state.bars import gauge
from tui.state.format import DIM, GOOD, STAGE_MARKS, WARN, Mark, age, fit, peer_mark, plural
from tui.state.plan_words import is_of_ranks, part_of
from tui.state.progress_rate import byte_words, left_words, token_words
from tui.state.state import UiState

LABEL = 16
CHOICE = 24
# the plan lacks layers or is reloading: no tokens are written
_HOLES = ("hold", "replan", "wait")
STOPS = (*_HOLES, "rebuild")


class Choice(NamedTuple):
    """One way to recover: its name and its effect."""

    order: RecoveryChoice
    word: str
    effect: str


def held(snapshot: Snapshot) -> Recovery | None:
    """The recovery that stops everything; None if a Mac is only slow."""
    recovery = snapshot.recovery
    return recovery if recovery is not None and recovery.state in STOPS else None


def since(recovery: Recovery, now: float) -> str:
    """How long it has taken; `now` in seconds since the epoch."""
    return age(max(0.0, now - recovery.since))


def title(snapshot: Snapshot, recovery: Recovery) -> str:
    """The problem in one line: "mini is offline · layers 53–63 are missing"."""
    name, lost = mac_name(snapshot, recovery.mac), _lost(snapshot.plan, recovery.mac)
    if recovery.state == "rebuild":
        macs = plural(len(recovery.plan.stages), "Mac") if recovery.plan else "the remaining Macs"
        again = _stage(recovery.plan, recovery.mac) is not None
        return f"{name} restarted · re-reading" if again else f"{name or 'A Mac'} is offline · continuing on {macs}"
    what = f"{name or 'A Mac'} is offline"
    if recovery.state == "replan" or not lost:
        return f"{what} · looking for another split" if recovery.state == "replan" else what
    return f"{what} · {lost} missing"


def facts(state: UiState, recovery: Recovery, width: int) -> Content:
    """The event, the saved text and the progress, in lines of `width` cells."""
    waited = since(recovery, state.ticked_at)
    answers = f" in {plural(len(recovery.requests), 'answer')}" if len(recovery.requests) > 1 else ""
    kept = f"Nothing lost so far ({plural(recovery.tokens, 'token')} written{answers})."
    ago = "" if recovery.state == "wait" else f" ({waited} ago)"
    lines = [
        *_lines("What happened", recovery.text + ago, width),
        *_lines("Your text", kept if recovery.requests else "No answer was being written.", width),
    ]
    if recovery.state == "rebuild":
        part, whole = (recovery.done, recovery.total) if recovery.total else _loaded(state.snapshot)
        lines += _lines(gauge(part, whole, LABEL - 1), progress_words(state.snapshot, recovery), width, "$primary")
    if recovery.state == "wait":
        smaller = "Ctrl+O loads a smaller model; this answer is saved."
        way_out = recovery.fix if "replan" in recovery.choices else smaller
        lines += _lines("Waiting", f"for {waited}. {way_out}", width)
    return Content("\n").join(lines)


def choices(snapshot: Snapshot, recovery: Recovery) -> tuple[Choice, ...]:
    """The possible ways to recover, the default first."""
    plan, name = recovery.plan, mac_name(snapshot, recovery.mac) or "the Mac"
    split = ", ".join(f"{s.peer} {part_of(plan, s)}" for s in plan.owners) if plan else ""
    words: dict[RecoveryChoice, tuple[str, str]] = {
        "replan": (
            f"Continue on {plural(len(plan.stages), 'Mac')}" if plan else "Continue",
            split or "on the remaining Macs",
        ),
        "wait": (f"Wait for {name}", "resumes by itself"),
        "save": ("Save", "and continue later"),
        "stop": ("Stop", "and keep what's written"),
    }
    return tuple(Choice(order, *words[order]) for order in recovery.choices)


def choice_content(number: int, choice: Choice, width: int) -> Content:
    line = f"{number}  {fit(choice.word, CHOICE)} "
    return Content.assemble(line, (fit(choice.effect, width - len(line)).rstrip(), DIM))


def progress_words(snapshot: Snapshot, recovery: Recovery) -> str:
    """How far the layers are loaded or, after that, the answers are re-read."""
    if recovery.total:
        per_s = (recovery.total - recovery.done) / recovery.eta_s if recovery.eta_s else None
        read = token_words("re-read", recovery.done, recovery.total, per_s)
        return " · ".join([read, *left_words(recovery.eta_s)])
    done, total = _loaded(snapshot)
    return f"layers {byte_words(done, total)}" if total else "assigning layers"


def readiness(state: UiState) -> tuple[str, str] | None:
    """The recovery in the status line, and its style; None without one."""
    recovery = state.snapshot.recovery
    if recovery is None:
        return None
    waited = since(recovery, state.ticked_at)
    match recovery.state:
        case "suspect":
            return f"◐ slow {waited}", WARN
        case "stuck":
            return f"◐ {'stuck' if recovery.mac else 'slow step'} {waited}", WARN
        case "resume":
            return f"↻ reconnecting {waited}", WARN
        case "rebuild":
            part, whole = (recovery.done, recovery.total) if recovery.total else _loaded(state.snapshot)
            return (f"↻ rebuilding {100 * part // whole} %" if whole else "↻ rebuilding"), WARN
        case "wait":
            return f"○ waiting {waited}", WARN
        case "parked":
            return "○ saved", WARN
        case _:
            return f"○ paused {waited}", WARN


def mac_mark(state: UiState, peer: Peer) -> Mark:
    """The state of a Mac: that of its link, unless a recovery says more."""
    mark, recovery = peer_mark(peer), state.snapshot.recovery
    if recovery is None or mark.word not in ("ready", "slow"):
        return mark
    if recovery.mac == peer.device_id and recovery.state in ("suspect", "stuck"):
        word = "slow" if recovery.state == "suspect" else "stuck"
        return Mark("◐", f"{word} {since(recovery, state.ticked_at)}", WARN)
    if recovery.state == "rebuild" and _stage(state.snapshot.plan, peer.device_id):
        return Mark("↻", "rebuilding", WARN)
    return mark


def part_mark(snapshot: Snapshot, stage: Stage) -> Mark:
    """The state of a stage; a stage on a lost Mac is lost, whatever it reported before."""
    recovery = snapshot.recovery
    if recovery is not None and recovery.state in _HOLES and stage.device_id == recovery.mac:
        return STAGE_MARKS["lost"]
    known = next((s for s in snapshot.stages if s.device_id == stage.device_id), None)
    return STAGE_MARKS[known.status] if known is not None else Mark("●", "ready", GOOD)


def lost_name(snapshot: Snapshot) -> str:
    """The missing Mac; "" for none."""
    recovery = snapshot.recovery
    return mac_name(snapshot, recovery.mac) if recovery is not None and recovery.state in _HOLES else ""


def mac_name(snapshot: Snapshot, device_id: str) -> str:
    """A Mac's name; "" for no Mac in particular."""
    stage = _stage(snapshot.plan, device_id)
    return stage.peer if stage else snapshot.name_of(device_id)


def _lost(plan: Plan | None, device_id: str) -> str:
    stage = _stage(plan, device_id)
    if plan is None or stage is None:
        return ""
    return f"{part_of(plan, stage)} is" if is_of_ranks(plan) else f"layers {part_of(plan, stage)} are"


def _stage(plan: Plan | None, device_id: str) -> Stage | None:
    return next((s for s in plan.stages if s.device_id == device_id), None) if plan else None


def _loaded(snapshot: Snapshot) -> tuple[int, int]:
    done, total = (sum(getattr(s, f) for s in snapshot.stages) for f in ("done_bytes", "total_bytes"))
    return done, total


def _lines(label: str, text: str, width: int, style: str = DIM) -> list[Content]:
    parts = wrap(text, max(20, width - LABEL)) or [""]
    return [Content.assemble((fit(label if i == 0 else "", LABEL), style), part) for i, part in enumerate(parts)]
