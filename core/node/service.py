"""The per-Mac service: runs the parts of a node, and takes them down in order."""

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
from core.node.disks.leftover_files import sweep
from core.node.parts import NodeConfig, NodeParts
from core.node.trust.roster_enforcement import KeyReplaced

TAKE_DOWN_S = 8.0  # less than `core.node.process.STOP_S`
SAVE_EVERY = 60  # rounds of `_watch`


class Node:
    """One Mac's node. `run` returns when `stop` is called, or when this Mac has changed its key. `on_served` hears
    where other programs are served, once they are.
    """

    def __init__(self, config: NodeConfig, on_served: Callable[[ApiServed], None] = lambda _: None) -> None:
        self._config, self._on_served = config, on_served
        self._stopping = asyncio.Event()
        self._again: NodeConfig | None = None
        self.parts = NodeParts(config, self._stopping)
        self.parts.signals.on(KeyReplaced, self._start_anew)

    async def run(self) -> NodeConfig | None:
        """Start everything, wait for `stop`, take everything down. Where it was not `stop`, but a new key of this Mac:
        how to start the node that takes this one's place. Raises NodeError where it was a part of the node that failed.
        """
        parts = self.parts
        asyncio.get_running_loop().set_exception_handler(parts.tasks.unhandled)
        await parts.mesh.start(self._config.host, self._config.port)
        parts.peers.refresh_own()
        parts.supervisor.start()
        parts.transfers.own.restore(parts.identity.text_id)
        await parts.local_api.start(self._config.home.socket)
        if self._config.serves:
            self._on_served(await parts.api.start())
        parts.tasks.spawn("Advertising this Mac", parts.search.advertise())
        parts.tasks.essential("The watch over trust", self._watch)
        parts.tasks.essential("The watch over answers", parts.recovery.watch)
        parts.tasks.restartable("Measuring of throughput", parts.advisor.watch)
        parts.tasks.restartable("The look at the disk", parts.inventory.watch)
        parts.tasks.restartable("Asking for other Macs' logs", parts.logs.watch)
        parts.tasks.spawn("Sweeping what is left", asyncio.to_thread(sweep, self._config.home, time.time()))
        identity = parts.identity
        parts.journal.info(f"Node {identity.text_id[:8]} is up, key kept by {identity.storage}.")
        try:
            await self._stopping.wait()
        finally:
            try:
                async with asyncio.timeout(TAKE_DOWN_S):
                    await self._take_down()
            except TimeoutError:  # what the node ends with is told all the same
                parts.journal.error(f"Not everything could be ended within {TAKE_DOWN_S:.0f} s.")
        if failure := parts.tasks.failure:
            raise NodeError(f"{failure} failed by a defect, and the node has stopped.", "Its log says where.")
        return self._again

    def stop(self) -> None:
        """Make `run` return."""
        self._stopping.set()

    def _start_anew(self, _: KeyReplaced) -> None:
        self._again = msgspec.structs.replace(self._config, port=self.parts.mesh.port)
        self._stopping.set()

    async def _take_down(self) -> None:
        parts = self.parts
        ended = NodeError("The node of this Mac was ended.")
        parts.answering.end(ended, also_relayed=True)
        parts.answers.stop_all(ended.problem)
        await parts.api.stop()
        parts.sessions.stop(ended.problem)
        parts.speed.close()
        parts.awake.keep(wanted=False)
        await parts.transfers.own.close()
        await parts.pairing.stop()
        await parts.discovery.stop()
        await parts.mesh.stop("Its node was ended.")
        await parts.supervisor.stop()
        await parts.answers.close()
        await parts.local_api.stop()
        self._config.home.socket.unlink(missing_ok=True)
        await parts.tasks.stop()
        self._remember()

    async def _watch(self) -> None:
        """Memory, processes and networks of this Mac, who is not advertised any more, and what came to the door."""
        parts = self.parts
        for number in count(1):
            parts.peers.refresh_own()
            await parts.networks.look()
            parts.member.follow_paths()
            parts.awake.keep(wanted=self._stays_awake())
            parts.enforcement.enforce()
            parts.peers.sweep()
            parts.api.clients.look()
            parts.relay.look()
            if number % SAVE_EVERY == 0:
                self._remember()
            if (counters := self._counters()) != parts.bus.now.counters:
                parts.bus.publish(counters)
            await asyncio.sleep(2 * BEAT_S)

    def _stays_awake(self) -> bool:
        parts, own = self.parts, self.parts.identity.text_id
        copies = any(own in (t.mac, t.source) and t.state != "paused" for t in parts.bus.now.transfers)
        return stays_awake(self._config.awake, is_in_use=copies or parts.worker.plan is not None)

    def _counters(self) -> Counters:
        parts = self.parts
        return Counters(
            **parts.mesh.admissions,
            links_open=len(parts.mesh.contacts),
            pairing_attempts=parts.pairing.comparisons,
            mdns_records=len(parts.sightings),
            mdns_evicted=parts.sightings.evicted,
            mdns_refused=parts.discovery.refused,
        )

    def _remember(self) -> None:
        with suppress(TrustError):  # a full disk costs a hint
            self.parts.seen.save()
