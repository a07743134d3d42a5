"""Checks of this node: why no other Mac is found or linked, and other facts the user should know about this Mac.

The functions that end in `_finding` and `_findings` are pure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

from core.address import parse_place
from core.events import Peer
from core.mac.doctor import examine_machine, examine_network
from core.mac.interfaces import Interface, interfaces, on_subnet
from core.models.files.child_start import start_fault
from core.node.base.context import NodeContext
from core.node.base.last_run import unreachable
from core.node.base.tasks import Restarts
from core.node.peers.discovery import Discovery
from core.node.peers.worker_state import WorkerState
from core.requests.checks import Finding
from core.settings import Home
from core.text import clean_text
from core.trust.identity import Storage

MAX_FINDINGS: Final = 12
# modules of all kinds of child processes, with arguments
CHILDREN: Final = (
    ("core.models.text",),
    ("core.models.text.grammar_check",),
    ("core.models.slicing.examine", "."),
    ("core.models.files.hub_download",),
    ("core.worker",),
)


class NodeCheck:
    """Examines this Mac, its network and this node's knowledge of other Macs."""

    def __init__(self, node: NodeContext, worker: WorkerState, discovery: Discovery) -> None:
        config = node.config
        self._home, self._host, self._budget_bytes = node.home, config.host, config.budget_bytes
        self._model_roots = config.model_roots
        self._multicast, self._storage = config.multicast, node.identity.storage
        self._bus, self._tasks = node.bus, node.tasks
        self._worker, self._discovery = worker, discovery

    async def findings(self) -> AsyncGenerator[Finding, None]:
        peers = self._bus.now.peers
        own = next((p for p in peers if p.is_self), None)
        yield node_finding(own.address if own else "", self._host)
        if outdated := self._bus.now.outdated:
            yield Finding(name="version", state="warn", what=outdated)
        for finding in restart_findings(self._tasks.restarts):
            yield finding
        async for finding in examine_network(self._host):
            yield finding
        yield bonjour_finding(self._multicast, is_on=self._discovery.is_on, sees_itself=self._discovery.sees_itself)
        for finding in mac_findings([p for p in peers if not p.is_self], interfaces()):
            yield finding
        yield key_finding(self._storage)
        async for finding in examine_machine(
            self._home.root, self._budget_bytes, self._worker.working_set_bytes or 0, self._model_roots
        ):
            yield finding
        async for finding in child_findings():
            yield finding


async def findings_without_node(home: Home, host: str, budget_bytes: int) -> AsyncGenerator[Finding]:
    problem = unreachable(home).problem
    yield Finding(name="node", state="bad", what=problem.what, fix=problem.fix)
    async for finding in examine_network(host):
        yield finding
    async for finding in examine_machine(home.root, budget_bytes, 0):
        yield finding
    async for finding in child_findings():
        yield finding


async def child_findings() -> AsyncGenerator[Finding]:
    """Whether each kind of child process starts."""
    faults = [fault for kind in CHILDREN if (fault := await asyncio.to_thread(start_fault, *kind))]
    for fault in faults:
        yield Finding(name="processes", state="bad", what=fault.what, fix=fault.fix)
    if not faults:
        yield Finding(name="processes", state="ok", what=f"All {len(CHILDREN)} kinds of child processes start.")


def node_finding(address: str, host: str) -> Finding:
    if not address:
        return Finding(name="node", state="bad", what="It does not listen yet.", fix="Check again in a moment.")
    port = parse_place(address).port
    where = f"on all addresses of this Mac, port {port}" if host in ("0.0.0.0", "::") else f"at {address}"
    return Finding(name="node", state="ok", what=f"It listens {where}.")


def restart_findings(restarts: Mapping[str, Restarts]) -> list[Finding]:
    cure = "Please report it: the log of this node says where. Restarting the node may help until then."
    findings = []
    for name, (times, since) in restarts.items():
        often, clock = "once" if times == 1 else f"{times} times", time.strftime("%H:%M", time.localtime(since))
        findings.append(Finding(name="defect", state="warn", what=f"{name} failed {often} since {clock}.", fix=cure))
    return findings


def bonjour_finding(multicast: bool, *, is_on: bool, sees_itself: bool) -> Finding:
    """Whether this Mac is advertised; `sees_itself`: it has seen its own advertisement."""
    if not multicast:
        cure = "Add Macs by address, or start the node without --no-multicast."
        return Finding(name="Bonjour", state="warn", what="This node runs without it.", fix=cure)
    if not is_on:
        return Finding(name="Bonjour", state="bad", what="It could not be started.", fix="Press r to look again.")
    if not sees_itself:
        cure = "Check again in a few seconds; then see what it says about multicast."
        return Finding(name="Bonjour", state="warn", what="This Mac does not hear its own advertisement.", fix=cure)
    return Finding(name="Bonjour", state="ok", what="This Mac is advertised, and hears its advertisement.")


def mac_findings(others: Sequence[Peer], found: Sequence[Interface]) -> list[Finding]:
    if not others:
        cure = "Run macluster there, on the same network as this Mac; guest networks often keep Macs apart."
        return [Finding(name="other Macs", state="warn", what="None was found.", fix=cure)]
    findings = [_mac_finding(peer, found) for peer in others]
    return sorted(findings, key=lambda f: f.state == "ok")[:MAX_FINDINGS]


def _mac_finding(peer: Peer, found: Sequence[Interface]) -> Finding:
    name = clean_text(peer.name)
    if peer.state == "needs an update":
        return Finding(name=name, state="warn", what=peer.problem)
    if peer.state in ("connected", "suspect"):
        version = f"; macluster {peer.version}" if peer.version else ""
        return Finding(name=name, state="ok", what=f"Linked, at {peer.address}{version}.")
    what = peer.problem or (f"Seen at {peer.address}." if peer.address else "Not seen now.")
    hosts = [parse_place(place).host for place in (peer.address, *peer.also_at) if place]
    if hosts and all(on_subnet(host, found) is False for host in hosts):
        subnets = ", ".join(dict.fromkeys(each.subnet for each in found if each.is_up and not each.is_loopback))
        cure = f"Its address {hosts[0]} is on none of this Mac's networks ({subnets}): put both on one."
        return Finding(name=name, state="bad", what=what, fix=cure)
    if peer.problem:
        cure = "See that macluster runs there, and that no firewall blocks it."
        return Finding(name=name, state="bad", what=what, fix=cure)
    if peer.trust in ("seen", "unpaired"):
        return Finding(name=name, state="ok", what=what, fix="Not paired: press p on both Macs.")
    return Finding(name=name, state="warn", what=what, fix="Not connected: macluster keeps looking. r looks at once.")


def key_finding(storage: Storage) -> Finding:
    if storage == "keychain":
        return Finding(name="key", state="ok", what="Kept in the keychain of this Mac.")
    cure = "`macluster trust key keychain` moves it into the keychain, where one is open."
    return Finding(name="key", state="warn", what="Kept by file permissions (0600).", fix=cure)
