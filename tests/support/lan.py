"""A bridge with a Mac in a network namespace of its own at each port: real addresses, real multicast."""

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
    """Namespaces of these names on one bridge; the address of each, by its name. Nothing of it stays."""
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
    stack.callback(ip, "link", "del", port)  # it outlives its namespace
    ip("link", "set", port, "master", bridge(), "up")
    ip("-n", name, "link", "set", "lo", "up")
    ip("-n", name, "addr", "add", f"{address}/24", "brd", "+", "dev", "eth0")
    ip("-n", name, "link", "set", "eth0", "up", "multicast", "on")
    ip("-n", name, "route", "add", "224.0.0.0/4", "dev", "eth0")


def give_addresses(one: str, other: str, interface: str) -> None:
    """The ends of a cable from one namespace to the other get addresses such as interfaces give to themselves."""
    for number, name in enumerate((one, other), 1):
        ip("-n", name, "link", "set", interface, "addrgenmode", "none")
        ip("-n", name, "addr", "add", f"169.254.{number}.{number}/16", "dev", interface)
        ip("-n", name, "link", "set", interface, "up", "multicast", "on")


def give_ipv6(one: str, other: str, interface: str) -> None:
    """The ends of a cable get addresses of that kind, beside those that they have."""
    for number, name in enumerate((one, other), 1):
        ip("-n", name, "addr", "add", f"fe80::{number}/64", "dev", interface, "nodad")


def leave_ipv4(one: str, other: str, interface: str) -> None:
    """No other addresses are left to the ends of a cable."""
    for name in (one, other):
        ip("-n", name, "-4", "addr", "flush", "dev", interface)


def plug(name: str, interface: str, address: str) -> None:
    """Another interface for a namespace, with nobody at its other end."""
    end = f"{interface}-end"
    ip("-n", name, "link", "add", interface, "type", "veth", "peer", "name", end)
    ip("-n", name, "link", "set", end, "up")
    ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
    ip("-n", name, "link", "set", interface, "up", "multicast", "on")


def unplug(name: str, interface: str) -> None:
    ip("-n", name, "link", "del", interface)


def inside(name: str, *command: str) -> Sequence[str]:
    """The command as it runs in that namespace."""
    return ["ip", "netns", "exec", name, *command]
