"""Words about plans that other Macs lead, and about what this Mac does in them. Pure."""

from __future__ import annotations

from core.events import LedPlan, Snapshot
from core.requests.restart import RestartReport
from tui.state.disks import own_id
from tui.state.format import plural
from tui.state.plan_words import part_of


def led_words(led: LedPlan, now: Snapshot) -> str:
    """Such as "Qwen3-14B · led by studio · layers 15–29 here · 2 answers"."""
    words = [led.model, f"led by {led.led_by}"]
    if led.plan and (stage := next((each for each in led.plan.parts if each.device_id == own_id(now)), None)):
        part = part_of(led.plan, stage) if stage in led.plan.stages else "prefill"
        words.append(f"layers {part} here" if part[0].isdigit() else f"{part} here")
    words += [plural(led.answers, "answer")] if led.answers else []
    return " · ".join([*words, *([led.status] if led.status != "ready" else [])])


def answers_of(led: LedPlan) -> str:
    return f"{led.led_by}'s {'answer' if led.answers == 1 else plural(led.answers, 'answer')}"


def broken_words(led: LedPlan) -> str:
    """The cost of taking this Mac away from the plan."""
    return f"breaks {answers_of(led)}" if led.answers else f"ends {led.model} on all its Macs"


def stopped_words(found: RestartReport) -> str:
    """The loss on other Macs when this Mac's node stops."""
    answers = f"; {plural(found.answers, 'answer')} of {found.led_by} would break" if found.answers else ""
    return f"{found.model}, which {found.led_by} loaded, stops on all its Macs{answers}."


def nothing_words(now: Snapshot) -> str:
    """Why a screen about the plan of this Mac has nothing to show."""
    if now.host is None:
        return "No model is loaded. Ctrl+O chooses one."
    return f"{led_words(now.host, now)}.\n\nIts figures are on the screen of {now.host.led_by}."


def unasked_words(now: Snapshot) -> str:
    """Why the chat can't ask the Mac that leads; "" if it can, or if none does."""
    if now.host is None or now.chat_status == "ready":
        return ""
    if not now.host.takes_relayed and now.host.status == "ready":
        return f"{now.host.led_by} doesn't answer what other Macs ask (--no-relay)."
    return f"{now.host.model} isn't ready on {now.host.led_by}."
