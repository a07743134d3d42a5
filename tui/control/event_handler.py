"""Folds the node's events into the state, draws, and starts follow-up work."""

from __future__ import annotations

import time
from typing import Final

from core import events
from core.errors import Problem
from tui.control.app_interface import AppInterface
from tui.control.chat_controller import ChatController
from tui.control.model_controller import ModelController
from tui.state import state
from tui.state.disks import names_of
from tui.state.format import is_ready

# frequent events, drawn at the next tick
_FREQUENT: Final = (
    *(events.Batch, events.TokenEvent, events.HopSample, events.LogLine),
    *(events.PeerChanged, events.Progress, events.StageState),
)


class EventHandler:
    """Folds events into the state of `app` and draws what changed."""

    def __init__(self, app: AppInterface, models: ModelController, chat: ChatController) -> None:
        self._app = app
        self._models = models
        self._chat = chat

    def handle(self, event: events.AnyEvent) -> None:
        app, before = self._app, self._app.state
        app.state = state.fold(before, event, time.time())
        if isinstance(event, events.TokenEvent):
            if app.state.turns is not before.turns:  # tokens of another answer are not on screen
                app.show_answer()
        elif not isinstance(event, _FREQUENT):
            app.set_state(app.state)
        is_new, has_moved = not before.attached, _fitting(before.snapshot) != _fitting(app.state.snapshot)
        if is_new or has_moved or isinstance(event, events.ModelsChanged):
            self._models.find()
        if isinstance(event, events.Transfer):
            self._notify_end(event)
        if is_new or (isinstance(event, events.RequestDone) and event.problem is not None):
            self._chat.find_unfinished()

    def lose(self, problem: Problem | None) -> None:
        """The node is gone, with the reason; None while one is starting."""
        self._app.set_state(state.detached(self._app.state, problem))

    def _notify_end(self, transfer: events.Transfer) -> None:
        app = self._app
        if transfer.problem is not None:
            app.show_problem(transfer.problem)
        elif transfer.state == "done":
            app.notify(f"{transfer.model} is now on the disk of {names_of(app.state.snapshot, [transfer.mac])}.")


def _fitting(now: events.Snapshot) -> tuple[object, ...]:
    """Facts that decide how models fit: the loaded one, and the memory of the Macs that are ready."""
    return now.plan_status, {peer.device_id: peer.budget_bytes for peer in now.peers if is_ready(peer)}
