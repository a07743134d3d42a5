"""Why an action of the app cannot be done now. Pure."""

from __future__ import annotations

from core.events import Peer, Snapshot
from tui.state.conversation import interrupted
from tui.state.recovery import held
from tui.state.state import UiState, strangers

_NO_NODE = "the node of this Mac does not run"
_OFFLINE = ("pair", "unload", "keep", "go_on", "retry", "last_chat")


def why_not(state: UiState, run: str, *, starts_node: bool = True) -> str:
    """Why the action `run` of the app cannot be done; "" if it can. `starts_node`: this program may start the node."""
    now = state.snapshot
    name = run.partition("(")[0]
    if name in _OFFLINE and not state.attached:
        return _NO_NODE
    match name:
        case "start_node" if not starts_node:
            return "the simulated Macs are started together"
        case "start_node" if state.offline is None:
            return "the node of this Mac runs" if state.attached else "it is being started"
        case "last_chat" if state.last is None:
            return "a conversation is on screen (F3 has all)" if state.turns else "none is kept yet"
        case "go_on" if why := _why_not_on(state):
            return why
        case "stop_answer" if state.answer is None:
            return "no answer is being written"
        case "unload" if now.plan is None:
            return "no model is loaded"
        case "retry" if all(turn.role != "user" for turn in state.turns):
            return "nothing was asked yet"
        case "retry" if state.answer is not None:
            return "an answer is being written (Esc stops it)"
        case "go_on" | "retry" | "keep" if now.plan_status != "ready":
            return _not_ready(now)
        case _:
            return ""


def why_not_mac(state: UiState, peer: Peer | None, action: str) -> str:
    """Why a Mac cannot be asked for that; "" if it can, or if only the roster knows."""
    if peer is None:
        return "" if action == "add" else "no Mac is there"
    is_stranger = peer in strangers(state)
    match action:
        case "skip" if peer.is_self:
            return "this Mac leads what it loads, so it always holds layers"
        case "skip" if is_stranger or peer.trust == "blocked":
            return f"{peer.name} is not paired, so it holds no layers anyway"
        case "forget" if is_stranger:
            return f"{peer.name} is not paired; it leaves the list when it is advertised no longer"
        case _:
            return ""


def _why_not_on(state: UiState) -> str:
    kept = interrupted(state)
    if kept is None:
        return "no answer of this Mac was interrupted"
    unloaded = state.snapshot.plan_status in ("none", "broken")
    return f"it was written with {kept.model} (Ctrl+O loads that)" if unloaded else ""


def _not_ready(now: Snapshot) -> str:
    if recovery := held(now):
        return recovery.text.rstrip(".")
    return "the model is being loaded" if now.plan_status == "loading" else "no model is ready (Ctrl+O loads one)"
