"""Runs a demo in its own network namespace, with the hop studio → mbp through a recording TCP proxy.

The nodes don't know the proxy: nftables redirects the worker's data port, except for the proxy's own connection, which
comes from 127.0.0.2. Prints one JSON object for the test.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from core.events import StageState
from tests.support.cluster import ask, begin, finish, tokens_seen
from tui.cli.demo import Demo, DemoConfig

PROMPT = "the canary sings a secret that nobody else may read"
LONG = 64


class Tap:
    """Copies bytes both ways, keeps them, and flips one bit of the next bytes on demand."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.flip = threading.Event()
        self.flipped = threading.Event()
        self._target = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def lead_to(self, target: int) -> None:
        self._target = target
        rule = f"ip saddr != 127.0.0.2 tcp dport {target} redirect to :{self.port}"
        chain = f"type nat hook output priority -100; policy accept;\n{rule}"
        table = f"table ip mc {{\nchain out {{\n{chain}\n}}\n}}\n"
        subprocess.run(["nft", "-f", "-"], input=table, text=True, check=True)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self._target), source_address=("127.0.0.2", 0))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.heard += data
                if self.flip.is_set() and len(data) > 64:
                    self.flip.clear()
                    self.flipped.set()
                    data = data[:50] + bytes([data[50] ^ 1]) + data[51:]
                sink.sendall(data)
        except OSError:
            pass
        finally:
            source.close()
            sink.close()


async def data_port(pid: int) -> int:
    """The port where a worker listens, as soon as it does."""
    async with asyncio.timeout(120):
        while True:
            for connection in psutil.Process(pid).net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    return int(connection.laddr.port)
            await asyncio.sleep(0.05)


async def drive(model: Path) -> dict[str, object]:
    demo = Demo(DemoConfig(budgets_gb=(64, 32), model=model, multicast=False, has_spare=False), lambda _: None)
    try:
        await demo.start()
        await demo.join()
        await demo.head.until(lambda w: all(p.worker_pid for p in w.now.peers), 240, "Starting the workers")
        mbp = next(p.worker_pid for p in demo.head.now.peers if p.name == "mbp")
        tap = Tap()
        tap.lead_to(await data_port(mbp or 0))
        await demo.load()
        return await observe(demo, tap)
    finally:
        await demo.stop()


async def observe(demo: Demo, tap: Tap) -> dict[str, object]:
    first = await ask(demo.head, PROMPT, 24)
    assert demo.head.now.plan
    heard = bytes(tap.heard)
    request = await begin(demo.head, PROMPT, LONG)
    await tokens_seen(demo.head, request, 5)
    tap.flip.set()
    disturbed = await finish(demo.head, request)
    broken = any(isinstance(event, StageState) and event.status == "broken" for event in demo.head.seen)
    quiet = await ask(demo.head, PROMPT, LONG)
    return {
        "heard": heard.hex(),
        "names": [demo.head.now.plan.fingerprint, *(s.device_id for s in demo.head.now.plan.stages)],
        "cut": demo.head.now.plan.stages[-1].start,
        "tokens": first.tokens,
        "text": first.text,
        "flipped": tap.flipped.is_set(),
        "finish_reason": disturbed.done.finish_reason,
        "disturbed": disturbed.tokens,
        "quiet": quiet.tokens,
        "broken": broken,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(drive(Path(sys.argv[1])))))
