"""Reasons why an action of the app can't be done now. Pure."""

from __future__ import annotations

from core.events import Peer, Snapshot
from tui.state.conversation import interrupted
from tui.state.recovery import held
from tui.state.seat import unasked_words
from tui.state.state import UiState, strangers
from tui.state.versions import is_other_version

NO_NODE = "macluster's service isn't running on this Mac."
_OFFLINE = ("pair", "unload", "keep", "go_on", "retry", "last_chat")


def why_not(state: UiState, run: str, *, starts_node: bool = True) -> str:
    """Why the app can't do the action `run` now; "" if it can. `starts_node`: this program may start the node."""
    now = state.snapshot
    name = run.partition("(")[0]
    if name in _OFFLINE and not state.attached:
        return NO_NODE
    match name:
        case "start_node" | "restart_node" if not starts_node:
            return "The demo starts its Macs itself."
        case "restart_node" if not (state.attached or is_other_version(state.offline)):
            return NO_NODE
        case "start_node" if state.offline is None:
            return "macluster's service is already running." if state.attached else "It is already starting."
        case "last_chat" if state.last is None:
            return "A conversation is open (F3 lists all)." if state.turns else "There are no saved conversations yet."
        case "go_on" if why := _why_not_on(state):
            return why
        case "stop_answer" if state.answer is None:
            return "No answer is being written."
        case "unload" if now.plan is None:
            led = now.elsewhere[0] if now.elsewhere else None
            return f"{led.led_by} leads {led.model}: unload it there." if led else "No model is loaded."
        case "retry" if all(turn.role != "user" for turn in state.turns):
            return "Nothing has been asked yet."
        case "retry" if state.answer is not None:
            return "An answer is being written (Esc stops it)."
        case "retry" if now.chat_status != "ready":
            return unasked_words(now) or _not_ready(now)
        case "go_on" | "keep" if now.host:
            return f"Only {now.host.led_by} can do that: it leads {now.host.model}."
        case "go_on" | "keep" if now.plan_status != "ready":
            return _not_ready(now)
        case _:
            return ""


def why_not_mac(state: UiState, peer: Peer | None, run: str) -> str:
    """Why `run`, such as "ask('skip')", isn't possible with that Mac; "" if it is, or if only the roster knows."""
    name, _, rest = run.partition("(")
    action = rest.strip("')")
    if name != "ask":
        return ""
    if peer is None:
        return "" if action == "add" else "No Mac is selected."
    is_stranger = peer in strangers(state)
    match action:
        case "skip" if peer.is_self:
            return "This Mac leads the models it loads, so it always holds layers."
        case "skip" if is_stranger or peer.trust == "blocked":
            return f"{peer.name} isn't paired, so it can't hold layers."
        case "forget" if is_stranger:
            return f"{peer.name} isn't paired. It leaves the list when it leaves the network."
        case _:
            return ""


def _why_not_on(state: UiState) -> str:
    kept = interrupted(state)
    if kept is None:
        return "There is no interrupted answer to continue."
    unloaded = state.snapshot.plan_status in ("none", "broken")
    return f"The answer was written with {kept.model}. Load it first (Ctrl+O)." if unloaded else ""


def _not_ready(now: Snapshot) -> str:
    if recovery := held(now):
        return recovery.text
    return "The model is still loading." if now.plan_status == "loading" else "No model is ready (Ctrl+O loads one)."
