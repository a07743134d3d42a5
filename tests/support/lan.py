"""A bridge with one Mac, in its own network namespace, at each port: real addresses, real multicast."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

SUBNET = "10.77.41"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def bridge() -> str:
    """The name of the bridge that this process makes."""
    return f"mc{os.getpid() % 100_000}br"


@contextmanager
def lan(*names: str) -> Iterator[dict[str, str]]:
    """Namespaces of these names on one bridge, with the address of each; all are removed at the end."""
    with ExitStack() as stack:
        ip("link", "add", bridge(), "type", "bridge", "mcast_snooping", "0")
        stack.callback(ip, "link", "del", bridge())
        ip("link", "set", bridge(), "up")
        addresses = {}
        for number, name in enumerate(names, 1):
            addresses[name] = f"{SUBNET}.{number}"
            _join(stack, f"{bridge()}{number}", name, addresses[name])
        yield addresses


def _join(stack: ExitStack, port: str, name: str, address: str) -> None:
    ip("netns", "add", name)
    stack.callback(ip, "netns", "del", name)
    ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    stack.callback(ip, "link", "del", port)  # the port outlives its namespace
    ip("link", "set", port, "master", bridge(), "up")
    ip("-n", name, "link", "set", "lo", "up")
    ip("-n", name, "addr", "add", f"{address}/24", "brd", "+", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up", "multicast", "on")
    ip("-n", name, "route", "add", "224.0.0.0/4", "dev", "eth0")


def give_addresses(one: str, other: str, interface: str) -> None:
    """Give link-local addresses to the ends of a cable between two namespaces."""
    for number, name in enumerate((one, other), 1):
        ip("-n", name, "link", "set", interface, "addrgenmode", "none")
        ip("-n", name, "addr", "add", f"169.254.{number}.{number}/16", "dev", interface)
        ip("-n", name, "link", "set", interface, "up", "multicast", "on")


def give_ipv6(one: str, other: str, interface: str) -> None:
    """Give the ends of a cable link-local IPv6 addresses as well."""
    for number, name in enumerate((one, other), 1):
        ip("-n", name, "addr", "add", f"fe80::{number}/64", "dev", interface, "nodad")


def leave_ipv4(one: str, other: str, interface: str) -> None:
    """Remove all addresses but IPv4 from the ends of a cable."""
    for name in (one, other):
        ip("-n", name, "-4", "addr", "flush", "dev", interface)


def plug(name: str, interface: str, address: str) -> None:
    """Give a namespace another interface, with no host at its other end."""
    end = f"{interface}-end"
    ip("-n", name, "link", "add", interface, "type", "veth", "peer", "name", end)
    ip("-n", name, "link", "set", end, "up")
    ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
    ip("-n", name, "link", "set", interface, "up", "multicast", "on")


def unplug(name: str, interface: str) -> None:
    ip("-n", name, "link", "del", interface)


def inside(name: str, *command: str) -> Sequence[str]:
    """The command line that runs in that namespace."""
    return ["ip", "netns", "exec", name, *command]
