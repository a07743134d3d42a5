"""Follows the node's events, folds them into the state, draws, and starts follow-up work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from core import events
from core.errors import MaclusterError, NodeUnreachable, Problem
from tui.client import NodeClient
from tui.control.app_interface import AppInterface
from tui.control.chat_controller import ChatController
from tui.control.model_controller import ModelController
from tui.state import state
from tui.state.disks import names_of
from tui.state.format import is_ready

RETRY_S: Final = 1.0
EVENTS_A_TURN: Final = 64
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
    """Facts that decide how models fit: the loaded ones, and the memory of the Macs that are ready."""
    led = [each.fingerprint for each in now.elsewhere]
    return now.plan_status, led, {peer.device_id: peer.budget_bytes for peer in now.peers if is_ready(peer)}


async def follow(client: NodeClient, take: Callable[[events.AnyEvent], None], lose: Callable[[Problem], None]) -> None:
    """Pass every event to `take`, forever. While no node answers, call `lose` once a second with the reason."""
    while True:
        gone = NodeUnreachable("macluster's service on this Mac stopped.").problem
        try:
            count = 0
            async for event in client.events():
                take(event)
                count += 1
                if count % EVENTS_A_TURN == 0:
                    # a burst of events would keep the screen from being drawn
                    await asyncio.sleep(0)
        except MaclusterError as error:
            gone = error.problem
        lose(gone)
        await asyncio.sleep(RETRY_S)
