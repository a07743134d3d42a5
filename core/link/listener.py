"""Open listening sockets, and determine who is calling.

Over IPv6 only link-local callers are accepted: routers don't forward these addresses, so only this network can connect.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Any

ANY_IPV4 = "0.0.0.0"


def open_listener(host: str, port: int, backlog: int) -> socket.socket:
    """Open a non-blocking listener on `port` (0: any). 0.0.0.0 also accepts IPv6 if supported. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    door = socket.create_server((host, port), family=family, backlog=backlog)
    if host == ANY_IPV4:
        door = _both_ways(door, backlog)
    door.setblocking(False)
    return door


def accept(door: socket.socket) -> tuple[socket.socket, tuple[Any, ...]]:
    """Accept a connection. macOS returns one without an address if the caller has reset it: ConnectionAbortedError."""
    sock, address = door.accept()
    if not address and door.family != socket.AF_UNIX:  # whose callers have no address
        sock.close()
        raise ConnectionAbortedError
    return sock, address


def caller_address(door: socket.socket, address: tuple[Any, ...]) -> str | None:
    """Address of a caller in its usual form; None if callers from there are refused."""
    host = plain_host(address)
    if door.family != socket.AF_INET6 or ":" not in host:
        return host
    is_for_ipv6 = bool(door.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
    return host if is_for_ipv6 or ip_address(host).is_link_local else None


def plain_host(address: tuple[Any, ...]) -> str:
    """The host of a socket address: without an interface suffix, and IPv4-mapped addresses as IPv4."""
    host = str(address[0]).partition("%")[0]
    found = ip_address(host) if host else None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or host)


def _both_ways(door: socket.socket, backlog: int) -> socket.socket:
    """Make a listener dual-stack. IPv4 is bound first: on macOS a dual-stack one could take over another's port."""
    port = door.getsockname()[1]
    door.close()
    with suppress(OSError):
        return socket.create_server(("::", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server((ANY_IPV4, port), backlog=backlog)
