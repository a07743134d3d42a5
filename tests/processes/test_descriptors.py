"""A node that may open 256 files, macOS's limit, and more clients than that."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

CLIENTS = 269
WAIT_S = 120.0
EVENTS = b"GET /v1/events HTTP/1.1\r\nHost: node\r\n\r\n"
MODELS = b"GET /v1/models HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"


class Lab(NamedTuple):
    home: Path
    port: int


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("h")
    options = "--host 127.0.0.1 --port 0 --no-multicast --budget 8"
    command = f"ulimit -n 256 && exec {sys.executable} -m core.node --home {folder} --models {folder} {options}"
    with subprocess.Popen(["/bin/sh", "-c", command]) as node:
        deadline = time.monotonic() + WAIT_S
        while not (folder / "node.sock").exists():
            assert node.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (listening,) = [c for c in psutil.Process(node.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        yield Lab(folder, listening.laddr.port)
        assert node.poll() is None, "it still runs"
        node.terminate()
        assert node.wait(WAIT_S) == 0
    assert "defect" not in (folder / "node.log").read_text()


@pytest.mark.parametrize("says", [b"", EVENTS[:9], EVENTS], ids=["nothing", "half", "all"])
@pytest.mark.promise("P11")
def test_269_clients_end_nothing_and_keep_no_other_out(lab: Lab, says: bytes) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(lab, says)) for _ in range(CLIENTS)]
        if says == EVENTS:
            assert ask(lab).startswith(b"HTTP/1.1 429 "), "nobody who listens is sent away for one more"
            assert sum(status_of(client) == b"HTTP/1.1 200" for client in clients) >= 64
        else:
            assert ask(lab).startswith(b"HTTP/1.1 200 "), "whoever only sits there makes room"
        with socket.create_connection(("127.0.0.1", lab.port), WAIT_S) as stranger:
            stranger.sendall(b"x" * 100)
            assert not status_of(stranger).startswith(b"HTTP"), "somebody is there to refuse this"
    deadline = time.monotonic() + WAIT_S
    while not ask(lab).startswith(b"HTTP/1.1 200 "):
        assert time.monotonic() < deadline


def status_of(client: socket.socket) -> bytes:
    try:
        return client.recv(12)
    except ConnectionError:  # it had to make room
        return b""


def connected(lab: Lab, says: bytes) -> socket.socket:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(WAIT_S)
        try:
            client.connect(str(lab.home / "node.sock"))
            with suppress(ConnectionError):  # it had to make room
                client.sendall(says)
            return client
        except (BlockingIOError, ConnectionRefusedError):  # faster than the socket's queue
            client.close()
            time.sleep(0.01)
    raise TimeoutError


def ask(lab: Lab) -> bytes:
    """The node's answer to one more client."""
    answer = b""
    with connected(lab, MODELS) as client:
        while piece := client.recv(1 << 16):
            answer += piece
    return answer
