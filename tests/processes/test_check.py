"""The check and the rescan of real nodes, and the command that prints the check."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from core.errors import UsageError
from core.node.peers.discovery import Discovery, Sighting
from core.requests.checks import Finding
from core.settings import Home
from tests.support.command import macluster
from tests.support.contexts import context_of
from tests.support.macs import mac
from tests.support.nodes import HOST, advertise, paired_home, responder, running_node
from tui.cli.watch import Watch

SEEN_S = 120.0


async def doctor(home: Path, *words: str) -> tuple[int, str]:
    """Exit status and output of `macluster doctor`."""
    said = await macluster(home, "doctor", "--host", HOST, *words)
    return said.returncode, said.stdout


async def test_a_node_on_loopback_says_so_and_looks_nowhere_else(tmp_path: Path) -> None:
    home = paired_home(tmp_path, 0)
    async with running_node(home, "--no-multicast", has_worker=True) as node:
        status, as_json = await doctor(home.root, "--json")
        found = {f.name: f for f in msgspec.json.decode(as_json, type=list[Finding])}
        assert status == (1 if any(f.state == "bad" for f in found.values()) else 0)
        assert list(found)[:2] == ["node", "network"]
        assert found["node"].what.startswith("It listens at 127.0.0.1:")
        assert found["network"].what.startswith("Loopback only: ")
        assert found["Bonjour"].state == "warn"
        assert found["key"].what.startswith("Kept")
        assert "other Macs" in found
        assert not any("eth" in f.what for f in found.values())
        with pytest.raises(UsageError, match="without Bonjour"):
            await node.client.rescan()
        _, printed = await doctor(home.root)
        assert "▲ warning   Bonjour: This node runs without it." in printed


async def test_without_a_node_it_says_what_can_be_said(tmp_path: Path) -> None:
    status, printed = await doctor(tmp_path / "none")
    assert status == 1
    assert printed.startswith("✗ problem   node: No node answers on this Mac.")
    assert "Loopback only" in printed
    assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("bonjour")
async def test_a_node_with_bonjour_hears_itself_and_looks_again_when_asked(tmp_path: Path) -> None:
    home = Home(tmp_path / "solo")
    home.root.mkdir(mode=0o700)
    async with running_node(home, has_worker=True) as node, asyncio.timeout(SEEN_S):
        await asyncio.gather(*(node.client.rescan() for _ in range(3)))
        while "hears its advertisement" not in (found := await of_bonjour(node)).what:
            await node.client.rescan()
        assert found.state == "ok"


async def of_bonjour(node: Watch) -> Finding:
    (found,) = [finding async for finding in node.client.check() if finding.name == "Bonjour"]
    return found


@pytest.mark.usefixtures("bonjour")
async def test_looking_again_finds_what_was_found_before() -> None:
    """A Mac that was removed from the table is reported again."""
    seen: asyncio.Queue[str] = asyncio.Queue()
    own, other = (mac(number).text_id for number in (0, 1))
    node = context_of(own_id=own, name="studio")
    node.signals.on(Sighting, lambda sighting: seen.put_nowait(sighting.device_id))
    discovery = Discovery(node)

    async def sighted() -> None:
        async with asyncio.timeout(SEEN_S):
            while await seen.get() != other:
                pass

    async with responder() as bonjour:
        await advertise(bonjour, other, "mini", 4717)
        try:
            await discovery.look(4717)
            await sighted()
            await discovery.look(4717)
            await sighted()
        finally:
            await discovery.stop()
