"""Network kind of an interface (Wi-Fi, Ethernet, …), and sockets bound to one interface."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

import psutil

from core.events import PathKind

_IP_BOUND_IF: Final = 25  # of macOS; Python has no name for it
_TUNNELS: Final = ("utun", "tun", "tap", "ppp", "ipsec", "wg", "tailscale")
_BY_NAME: Final[tuple[tuple[str, PathKind], ...]] = (
    (r"thunderbolt\d", "Thunderbolt"),
    (r"wl", "Wi-Fi"),
    (r"eth|enp|eno|ens", "Ethernet"),
)


def link_kind(host: str) -> str:
    """How this Mac's address `host` is connected: "Wi-Fi (en0)", "en7" (unknown kind), "loopback", or "" (none)."""
    if not host or ip_address(host.partition("%")[0]).is_loopback:
        return "loopback" if host else ""
    name = interface_of(host)
    kind = _ports().get(name, "") if name and sys.platform == "darwin" else ""
    return f"{kind} ({name})" if kind else name


def interface_of(host: str) -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == host for address in addresses):
            return name
    return ""


def path_kind(name: str, port: str) -> PathKind:
    """Kind of network; `port` is macOS's hardware port name or "". An adapter in a Thunderbolt port is Ethernet."""
    if name.startswith(_TUNNELS):
        return "tunnel"
    if "Ethernet" in port or "LAN" in port:
        return "Ethernet"
    if "Thunderbolt" in port:
        return "Thunderbolt"
    if port in ("Wi-Fi", "AirPort"):
        return "Wi-Fi"
    return next((kind for pattern, kind in _BY_NAME if re.match(pattern, name)), "")


def bind_to(sock: socket.socket, interface: str) -> None:
    """Make `sock` send through `interface` only, needed for self-assigned addresses. Raises OSError."""
    if sys.platform == "darwin":
        sock.setsockopt(socket.IPPROTO_IP, _IP_BOUND_IF, socket.if_nametoindex(interface))
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")


@lru_cache(maxsize=4)
def hardware_ports(names: frozenset[str]) -> dict[str, str]:
    """macOS's hardware port names by interface, cached per set of `names`; empty on other systems."""
    return _ports() if names and sys.platform == "darwin" else {}


def parse_ports(text: str) -> dict[str, str]:
    kinds, kind = {}, ""
    for line in text.splitlines():
        word, _, value = line.partition(": ")
        if word == "Hardware Port":
            kind = value.strip()
        elif word == "Device" and kind:
            kinds[value.strip()] = kind
    return kinds


def _ports() -> dict[str, str]:
    command = ["/usr/sbin/networksetup", "-listallhardwareports"]
    try:
        return parse_ports(subprocess.run(command, capture_output=True, text=True, timeout=2, check=False).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return {}
