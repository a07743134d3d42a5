"""`python -m tests.attacks.flood PORT,PORT --seconds 5 --silent 1000 --rate 200`: a machine that floods ports.

It holds `silent` connections open without a byte, or makes `rate` TLS handshakes a second with an unknown leaf. Or it
opens `churn` connections a second from `hosts` addresses of loopback (Linux), each with `says` as its bytes, and drops
them soon. Without ports it takes every listening port in this network namespace, except `but`. It prints its counts as
JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import selectors
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.attacks.victim import HOST, Stranger

CONNECT_S = 0.25
LISTENING = "0A"
LOOK_S = 0.05
HELD = 1024
RESET = struct.pack("ii", 1, 0)
BIND_ADDRESS_NO_PORT = 24


def knock(address: tuple[str, int]) -> socket.socket | None:
    """A connection to `address`, or None without an answer: a full queue drops it."""
    try:
        return socket.create_connection(address, timeout=CONNECT_S)
    except OSError:
        return None


def hold(stack: ExitStack, addresses: list[tuple[str, int]], count: int) -> tuple[int, int]:
    """Connect `count` times at once; returns how many stood, and how many were closed within CONNECT_S."""
    stood = 0
    selector = stack.enter_context(selectors.DefaultSelector())
    waiting = []
    for number in range(count):
        sock = stack.enter_context(socket.socket())
        sock.setblocking(False)
        with suppress(BlockingIOError):
            sock.connect(addresses[number % len(addresses)])
        selector.register(sock, selectors.EVENT_WRITE)
        waiting.append(sock)
    deadline = time.monotonic() + 1.0
    while waiting and (left := deadline - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            sock = key.fileobj  # type: ignore[assignment]
            selector.unregister(sock)
            waiting.remove(sock)
            stood += sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    return stood, count - stood


def handshakes(addresses: list[tuple[str, int]], rate: int, seconds: float) -> int:
    """Make `rate` handshakes a second, evenly; returns how many were begun."""
    context, begun = Stranger().context(ssl.PROTOCOL_TLS_CLIENT), 0
    started = time.monotonic()
    while (now := time.monotonic() - started) < seconds:
        if begun > now * rate:
            time.sleep(begun / rate - now)
            continue
        begun += 1
        if plain := knock(addresses[begun % len(addresses)]):
            with plain, suppress(OSError), context.wrap_socket(plain) as sock:
                sock.recv(1)
    return begun


def listeners() -> list[int]:
    """The TCP ports (IPv4) with a listener in this network namespace."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == LISTENING]


def churn(ports: Callable[[], list[int]], rate: int, hosts: int, says: bytes, seconds: float) -> tuple[int, int]:
    """Connect `rate` times a second, each time from the next address.

    Returns the number of tries, and of connections that still stood when they were dropped.
    """
    held: deque[socket.socket] = deque()
    tried = stood = 0
    now, looked_at, targets = 0.0, -LOOK_S, list[int]()
    started = time.monotonic()

    def give_up() -> int:
        with held.popleft() as sock, suppress(OSError):
            sock.getpeername()
            return 1
        return 0

    while (now := time.monotonic() - started) < seconds:
        if now > looked_at + LOOK_S:
            looked_at, targets = now, ports()
        if not targets or tried > now * rate:
            time.sleep(0.001)
            continue
        tried += 1
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.setsockopt(socket.IPPROTO_IP, BIND_ADDRESS_NO_PORT, 1)
        sock.bind((f"127.1.0.{1 + tried % hosts}", 0))
        sock.connect_ex((HOST, targets[tried // hosts % len(targets)]))
        if says:
            with suppress(OSError):
                sock.send(says)
        held.append(sock)
        if len(held) > HELD:
            stood += give_up()
    while held:
        stood += give_up()
    return tried, stood


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=lambda text: [int(port) for port in text.split(",")], nargs="?")
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--but", type=lambda text: {int(port) for port in text.split(",")}, default=set())
    parser.add_argument("--silent", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--churn", type=int, default=0)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--says", type=bytes.fromhex, default=b"")
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if args.churn:
        fixed: list[int] | None = args.ports
        tried, stood = churn(
            lambda: fixed or [port for port in listeners() if port not in args.but],
            args.churn,
            args.hosts,
            args.says,
            args.seconds,
        )
        print(json.dumps({"tried": tried, "stood": stood, "seconds": args.seconds}))
        return
    addresses = [(args.host, port) for port in args.ports]
    with ExitStack() as stack:
        stood, refused = hold(stack, addresses, args.silent)
        started = time.monotonic()
        begun = handshakes(addresses, args.rate, args.seconds) if args.rate else 0
        time.sleep(max(0.0, args.seconds - (time.monotonic() - started)))
        print(json.dumps({"silent": stood, "dropped": refused, "handshakes": begun, "seconds": args.seconds}))


if __name__ == "__main__":
    main()
