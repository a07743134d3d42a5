"""The doors of a Mac, and who stands before one. By IPv6 comes in only who is at the other end of a cable: those
addresses no router passes on, so nobody beyond this network reaches a door by them.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Any

ANY_IPV4 = "0.0.0.0"


def open_listener(host: str, port: int, backlog: int) -> socket.socket:
    """A listener that does not block, on `port` (0 for any) of an address of this Mac; on all of its interfaces it
    listens by IPv4 and IPv6, where the system has both. Raises OSError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    door = socket.create_server((host, port), family=family, backlog=backlog)
    if host == ANY_IPV4:
        door = _both_ways(door, backlog)
    door.setblocking(False)
    return door


def caller_address(door: socket.socket, address: tuple[Any, ...]) -> str | None:
    """Who connected, as that address is written everywhere else; None where nobody may come in from there."""
    host = plain_host(address)
    if door.family != socket.AF_INET6 or ":" not in host:
        return host
    is_for_ipv6 = bool(door.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
    return host if is_for_ipv6 or ip_address(host).is_link_local else None


def plain_host(address: tuple[Any, ...]) -> str:
    """The host in an address of a socket: without the interface behind it, and an IPv4 one as such."""
    host = str(address[0]).partition("%")[0]
    found = ip_address(host) if host else None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or host)


def _both_ways(door: socket.socket, backlog: int) -> socket.socket:
    """In the place of one for IPv4, which was asked for first: macOS lets one for both stand beside another program's
    for IPv4, and takes its callers away.
    """
    port = door.getsockname()[1]
    door.close()
    with suppress(OSError):
        return socket.create_server(("::", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server((ANY_IPV4, port), backlog=backlog)
