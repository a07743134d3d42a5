"""The per-Mac service: starts the parts of a node and stops them in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import msgspec

from core.errors import NodeError, TrustError
from core.events import ApiServed, Counters
from core.link.liveness import BEAT_S
from core.mac.prevent_sleep import stays_awake
from core.node.base.last_run import read_last_run, record_led
from core.node.base.tasks import next_look
from core.node.config import NodeConfig
from core.node.disks.leftover_files import sweep
from core.node.parts import NodeParts
from core.node.trust.roster_enforcement import KeyReplaced

TAKE_DOWN_S = 8.0  # less than `core.node.process.STOP_S`
LOOK_S = 2 * BEAT_S
SAVE_EVERY = 60  # rounds of `_watch`


class Node:
    """One Mac's node. `run` returns after `stop`, or if this Mac's key changed. `on_served` gets the API's address."""

    def __init__(self, config: NodeConfig, on_served: Callable[[ApiServed], None] = lambda _: None) -> None:
        self._config, self._on_served = config, on_served
        self._stopping = asyncio.Event()
        self._led = ""  # the model that was recorded last
        self._again: NodeConfig | None = None
        self.parts = NodeParts(config, self._stopping)
        self.parts.node.signals.on(KeyReplaced, self._start_anew)

    async def run(self) -> NodeConfig | None:
        """Run until `stop`; returns restart options if this Mac has a new key. Raises NodeError if a part failed."""
        parts = self.parts
        asyncio.get_running_loop().set_exception_handler(parts.node.tasks.unhandled)
        try:
            await self._start()
            await self._stopping.wait()
        finally:
            try:
                async with asyncio.timeout(TAKE_DOWN_S):
                    await self._take_down()
            except TimeoutError:  # the failure is raised below
                parts.node.journal.error(f"Not everything could be ended within {TAKE_DOWN_S:.0f} s.")
        if failure := parts.node.tasks.failure:
            raise NodeError(f"{failure} failed by a defect, and the node has stopped.", "Its log says where.")
        return self._again

    async def _start(self) -> None:
        parts = self.parts
        await parts.peers.mesh.start(self._config.host, self._config.port)
        parts.peers.table.refresh_own()
        parts.ring.supervisor.start()
        parts.disks.transfers.own.restore()
        if (last := read_last_run(self._config.home)) and (led := last.led):
            said = f"{led} was loaded when the node of this Mac was killed. Load it again: `macluster load {led}`."
            parts.node.journal.warn(said)
        await parts.local_server.start(self._config.home.socket)
        if self._config.serves:
            self._on_served(await parts.api.api.start())
        parts.node.tasks.spawn("Advertising this Mac", parts.peers.search.advertise())
        parts.node.tasks.essential("The watch over trust", self._watch)
        parts.node.tasks.essential("The watch over answers", parts.plans.driver.watch)
        parts.node.tasks.restartable("The look at memory", self._look_at_memory)
        parts.node.tasks.restartable("The look at networks", self._look_at_networks)
        parts.node.tasks.restartable("Keeping this Mac awake", self._keep_awake)
        parts.node.tasks.restartable("Measuring of throughput", parts.plans.advisor.watch)
        parts.node.tasks.restartable("The look at the installation", parts.restarting.watch)
        parts.node.tasks.restartable("The look at the disk", parts.disks.inventory.watch)
        parts.node.tasks.restartable("Asking for other Macs' logs", parts.peers.logs.watch)
        parts.node.tasks.spawn("Sweeping what is left", asyncio.to_thread(sweep, self._config.home, time.time()))
        identity = parts.node.identity
        parts.node.journal.info(f"Node {identity.text_id[:8]} is up, key kept by {identity.storage}.")

    def stop(self) -> None:
        self._stopping.set()

    def _start_anew(self, _: KeyReplaced) -> None:
        self._again = msgspec.structs.replace(self._config, port=self.parts.peers.mesh.port)
        self._stopping.set()

    async def _take_down(self) -> None:
        parts = self.parts
        ended = NodeError("The node of this Mac was ended.")
        parts.api.answering.end(ended, also_relayed=True)
        parts.answers.answers.stop_all(ended.problem)
        await parts.api.api.stop()
        parts.answers.sessions.stop(ended.problem)
        parts.peers.speed.close()
        parts.awake.keep(wanted=False)
        await parts.disks.transfers.own.close()
        await parts.pairing.flow.stop()
        await parts.peers.discovery.stop()
        await parts.peers.mesh.stop("Its node was ended.")
        await parts.ring.supervisor.stop()
        await parts.answers.answers.close()
        await parts.local_server.stop()
        await parts.node.tasks.stop()
        self._remember()

    async def _watch(self) -> None:
        """Drop Macs that are no longer trusted and old advertisements, and count connections. Asks macOS nothing."""
        parts = self.parts
        for number in count(1):
            parts.trust.enforcement.enforce()
            parts.peers.table.sweep()
            parts.api.api.clients.look()
            parts.peers.elsewhere.look()
            self._note_led()
            if number % SAVE_EVERY == 0:
                self._remember()
            if (counters := self._counters()) != parts.node.bus.now.counters:
                parts.node.bus.publish(counters)
            await next_look(LOOK_S)

    async def _look_at_memory(self) -> None:
        while True:
            self.parts.peers.table.look()
            await next_look(LOOK_S)

    async def _look_at_networks(self) -> None:
        while True:
            await self.parts.peers.networks.look()
            self.parts.ring.member.follow_paths()
            await next_look(LOOK_S if self.parts.node.bus.now.is_working else 2 * LOOK_S)

    async def _keep_awake(self) -> None:
        parts, own = self.parts, self.parts.node.identity.text_id
        while True:
            copies = any(own in (t.mac, t.source) and t.state != "paused" for t in parts.node.bus.now.transfers)
            is_in_use = copies or parts.peers.worker.plan is not None
            parts.awake.keep(wanted=stays_awake(self._config.awake, is_in_use=is_in_use))
            await next_look(LOOK_S)

    def _counters(self) -> Counters:
        parts = self.parts
        return Counters(
            **parts.peers.mesh.admissions,
            links_open=len(parts.peers.mesh.contacts),
            ignored_messages=parts.peers.mesh.ignored,
            pairing_attempts=parts.pairing.flow.comparisons,
            mdns_records=len(parts.peers.sightings),
            mdns_evicted=parts.peers.sightings.evicted,
            mdns_refused=parts.peers.discovery.refused,
        )

    def _note_led(self) -> None:
        """Record the model for the next node, which offers it if this one is killed."""
        plan = self.parts.peers.worker.led
        if self.parts.node.bus.now.recovery or self._led == (led := plan.model if plan else ""):
            return
        self._led = led
        record_led(self._config.home, led)

    def _remember(self) -> None:
        with suppress(TrustError):  # a full disk loses only a hint
            self.parts.node.seen.save()
