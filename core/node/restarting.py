"""Starts the node again: on request, and by itself after an update if a service runs it and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from core.errors import Busy
from core.events import InstallationChanged, Snapshot
from core.mac.installation import Installation, Look, is_updated, looked, on_disk, outdated, running
from core.mac.service import IN_SERVICE
from core.node.base.context import NodeContext
from core.node.base.local_server import route
from core.node.peers.worker_state import WorkerState
from core.requests.restart import RestartOrder, RestartReport

LOOK_S: Final = 60.0


class Restarting:
    """Sets `stopping` when the node should start again; then `is_due` is set."""

    def __init__(self, node: NodeContext, worker: WorkerState, stopping: asyncio.Event) -> None:
        self._own_id, self._bus, self._journal, self._worker = node.own_id, node.bus, node.journal, worker
        self._stopping, self._started_at = stopping, time.time()
        self._look = Look(running(), 0.0)
        self.is_due = False

    def routes(self) -> Iterable[web.RouteDef]:
        return (route("POST", "/v1/restart", self.restart, RestartOrder),)

    def restart(self, order: RestartOrder) -> RestartReport:
        """Report what a restart ends, and with `go` restart. Raises Busy while an answer is being written."""
        plan, now = self._worker.plan or self._worker.led, self._bus.now
        if order.go:
            if is_answering(now):
                raise Busy("An answer is being written on this Mac.", "Try again when it has ended.")
            self._begin("The node starts again, as a command asked.")
        return RestartReport(
            version=now.version,
            started_at=self._started_at,
            is_answering=is_answering(now),
            model=plan.model if plan else "",
            led_by=plan.head.peer if plan and plan.head.device_id != self._own_id else "",
            answers=now.served.answers if now.served else 0,
        )

    async def watch(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self.look(await asyncio.to_thread(on_disk), clock(), in_service=IN_SERVICE in os.environ)
            await asyncio.sleep(LOOK_S)

    def look(self, found: Installation | None, now: float, *, in_service: bool) -> None:
        """Tell users of another installation, and start it if nothing is lost by that."""
        self._look = looked(self._look, found, now)
        text = outdated(running(), found)
        if text != self._bus.now.outdated:
            self._bus.publish(InstallationChanged(text=text))
            self._journal.info(text or "The installation is as it was when this node started.")
        if in_service and is_updated(self._look, running(), now) and self._is_idle:
            self._begin("The node starts again with what is installed now.")

    @property
    def _is_idle(self) -> bool:
        now = self._bus.now
        pairs = now.pairing is not None and now.pairing.state in ("waiting", "compare")
        has_plan = self._worker.plan or self._worker.led or now.recovery
        return not (has_plan or now.transfers or pairs or is_answering(now))

    def _begin(self, why: str) -> None:
        self._journal.info(why)
        self.is_due = True
        self._stopping.set()


def is_answering(now: Snapshot) -> bool:
    return now.is_answering or any(client.asking for client in now.clients)
