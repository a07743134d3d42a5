"""Real nodes of the Macs of `tests.support.macs`, already paired, on loopback, and advertisements of others."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from zeroconf import IPVersion
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from core.node.peers.discovery import SERVICE_TYPE
from core.settings import Home
from core.trust.roster.store import RosterStore
from tests.support.macs import bundle, chain, mac
from tui.cli.watch import Watch

HOST = "127.0.0.1"
START_S = 120.0
NO_WORKER = {"PYTHONPATH": str(Path(__file__).parent / "no_worker")}


def paired_home(folder: Path, number: int, size: int = 2) -> Home:
    """The state folder of `mac(number)` in the cluster of the first `size` Macs."""
    home = Home(folder / str(number))
    home.root.mkdir(mode=0o700)
    shutil.copytree(mac(number).key_path.parent, home.identity)
    RosterStore(home.rosters).adopt(bundle(chain(size), *(mac(n).certificate_der for n in range(size))))
    return home


@asynccontextmanager
async def running_node(home: Home, *options: str, port: int = 0, has_worker: bool = False) -> AsyncIterator[Watch]:
    """A node over that folder; the folder stays when it ends. Without `has_worker` its worker does nothing."""
    command = [
        *(sys.executable, "-m", "core.node", "--home", str(home.root), "--name", home.root.name, "--host", HOST),
        *("--port", str(port), "--budget", "8", "--chip", "M1", "--until-eof", "--no-spare-worker", *options),
    ]
    env = os.environ | ({} if has_worker else NO_WORKER)
    node = subprocess.Popen(  # noqa: ASYNC220 - not waited for
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env
    )
    try:
        async with Watch(home) as watch:
            await watch.attached(START_S, lambda: node.poll() is None)
            yield watch
    finally:
        assert node.stdin
        node.stdin.close()
        try:
            node.wait(60)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def own_port(watch: Watch) -> int:
    """The port where this node listens for control links."""
    return int(next(p.address for p in watch.now.peers if p.is_self).rpartition(":")[2])


def free_port() -> int:
    """A port of loopback without a listener."""
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])


@asynccontextmanager
async def responder() -> AsyncIterator[AsyncZeroconf]:
    """Another host's Bonjour on loopback."""
    zeroconf = AsyncZeroconf(interfaces=[HOST], ip_version=IPVersion.V4Only)
    try:
        yield zeroconf
    finally:
        await zeroconf.async_close()


async def advertise(
    zeroconf: AsyncZeroconf, device_id: str, name: str | bytes, port: int, *, host: str = HOST, **txt: str
) -> AsyncServiceInfo:
    """Advertise a node without asking whether the name is taken, and without waiting for the announcements."""
    info = AsyncServiceInfo(
        SERVICE_TYPE,
        f"{device_id}.{SERVICE_TYPE}",
        addresses=[socket.inet_aton(host)],
        port=port,
        properties={"id": device_id, "name": name, **txt},
        server=f"{device_id}-{port}.local.",
    )
    await zeroconf.async_register_service(info, cooperating_responders=True)
    return info
