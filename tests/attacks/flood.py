"""`python -m tests.attacks.flood PORT,PORT --seconds 5 --silent 1000 --rate 200`: a machine that only wants to disturb.

It holds `silent` connections open without a word, makes `rate` TLS handshakes a second with a leaf that nobody knows,
and prints as JSON what it achieved.
"""

from __future__ import annotations

import argparse
import json
import resource
import selectors
import socket
import ssl
import time
from contextlib import ExitStack, suppress

from tests.attacks.victim import HOST, Stranger

CONNECT_S = 0.25


def knock(address: tuple[str, int]) -> socket.socket | None:
    """A connection to `address`, or None if nobody answers: a full queue drops what comes."""
    try:
        return socket.create_connection(address, timeout=CONNECT_S)
    except OSError:
        return None


def hold(stack: ExitStack, addresses: list[tuple[str, int]], count: int) -> tuple[int, int]:
    """Connect `count` times all at once; how many of them stood, and how many were hung up on within CONNECT_S."""
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
    deadline = time.monotonic() + 2.0
    while waiting and (left := deadline - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            sock = key.fileobj  # type: ignore[assignment]
            selector.unregister(sock)
            waiting.remove(sock)
            stood += sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    return stood, count - stood


def handshakes(addresses: list[tuple[str, int]], rate: int, seconds: float) -> int:
    """So many handshakes a second, as evenly as may be; how many were begun."""
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=lambda text: [int(port) for port in text.split(",")])
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--silent", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    addresses = [(args.host, port) for port in args.ports]
    with ExitStack() as stack:
        stood, refused = hold(stack, addresses, args.silent)
        started = time.monotonic()
        begun = handshakes(addresses, args.rate, args.seconds) if args.rate else 0
        time.sleep(max(0.0, args.seconds - (time.monotonic() - started)))
        print(json.dumps({"silent": stood, "dropped": refused, "handshakes": begun, "seconds": args.seconds}))


if __name__ == "__main__":
    main()
