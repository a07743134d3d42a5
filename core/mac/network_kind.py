"""Network kind of an interface (Wi-Fi, Ethernet, …), and sockets bound to one interface."""

from __future__ import annotations

import plistlib
import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from xml.parsers.expat import ExpatError

import psutil

from core.events import PathKind
from core.mac.system_command import answered

_IP_BOUND_IF: Final = 25  # of macOS; Python has no name for it
_SO_BINDTODEVICE: Final = 25  # of Linux; Python has its name only there
_TUNNELS: Final = ("utun", "tun", "tap", "ppp", "ipsec", "wg", "tailscale")
# macOS's own list of interfaces, in words that it doesn't translate; an interface just plugged in may be missing
LISTED: Final = Path("/Library/Preferences/SystemConfiguration/NetworkInterfaces.plist")
_BRIDGE: Final = "bridge0"  # of all Thunderbolt ports; macOS lists it elsewhere
# by the driver, which is in the path of an interface through the hardware; an iPhone and Bluetooth are no network
_BY_DRIVER: Final[tuple[tuple[str, PathKind], ...]] = (
    ("AppleThunderboltIPPort", "Thunderbolt"),
    ("AppleUSBEthernetHost", ""),
    ("Bluetooth", ""),
)
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
    kind = listed_kinds().get(name, "")
    return f"{kind} ({name})" if kind else name


def interface_of(host: str) -> str:
    with suppress(OSError):
        for name, addresses in answered(psutil.net_if_addrs()).items():
            if any(address.address.partition("%")[0] == host for address in addresses):
                return name
    return ""


def path_kind(name: str, listed: Mapping[str, PathKind]) -> PathKind:
    """Kind of network; `listed`: the kinds that macOS knows. An adapter in a Thunderbolt port is Ethernet."""
    if name.startswith(_TUNNELS):
        return "tunnel"
    if name in listed:
        return listed[name]
    return next((kind for pattern, kind in _BY_NAME if re.match(pattern, name)), "")


def bind_to(sock: socket.socket, interface: str) -> None:
    """Make `sock` send through `interface` only, needed for self-assigned addresses. Raises OSError."""
    if sys.platform == "darwin":
        sock.setsockopt(socket.IPPROTO_IP, _IP_BOUND_IF, socket.if_nametoindex(interface))
    else:
        sock.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, interface.encode() + b"\0")


def listed_kinds() -> dict[str, PathKind]:
    """Kinds that macOS knows, by interface name; empty on other systems."""
    if sys.platform != "darwin":
        return {}
    try:
        return {**_kinds_in(LISTED, LISTED.stat().st_mtime_ns), _BRIDGE: "Thunderbolt"}
    except (OSError, ValueError, ExpatError):
        return {_BRIDGE: "Thunderbolt"}


@lru_cache(maxsize=1)
def _kinds_in(path: Path, _changed_ns: int) -> dict[str, PathKind]:
    return parse_kinds(path.read_bytes())


def parse_kinds(plist: bytes) -> dict[str, PathKind]:
    """Kinds by interface name. Raises ValueError, ExpatError."""
    listed = plistlib.loads(plist).get("Interfaces", ())
    return {
        each["BSD Name"]: _kind_of(each.get("SCNetworkInterfaceType", ""), each.get("IOPathMatch", ""))
        for each in listed
        if "BSD Name" in each
    }


def _kind_of(kind: str, hardware: str) -> PathKind:
    if kind == "IEEE80211":
        return "Wi-Fi"
    if kind != "Ethernet":
        return ""
    return next((found for driver, found in _BY_DRIVER if driver in hardware), "Ethernet")
