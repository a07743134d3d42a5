"""Parse, check and print a node's address, HOST:PORT."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from core.errors import UsageError
from core.settings import CONTROL_PORT


class Place(NamedTuple):
    """Address of a node; prints IPv6 hosts in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def ip_of(host: str) -> IPv4Address | IPv6Address | None:
    """None for a name, which is not looked up."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_link_local(host: str) -> bool:
    """Whether the interface assigned itself this address, so that it reaches only the other end of a cable."""
    return bool((address := ip_of(host)) and address.is_link_local)


def is_loopback(host: str) -> bool:
    return address.is_loopback if (address := ip_of(host)) else host == "localhost"


def parse_place(text: str) -> Place:
    """Parse HOST:PORT, ignoring spaces. Raises UsageError; `checked_place` checks the host."""
    host, _, port = "".join(text.split()).rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise UsageError(f"{text!r} has no port from 1 to 65535.", f"Such as 192.168.1.7:{CONTROL_PORT}.")
    if not host:
        raise _no_address(host)
    return Place(host.removeprefix("[").removesuffix("]"), int(port))


def checked_place(host: str, port: int) -> Place:
    """Check a host that a user typed. Raises UsageError if it can't have an address."""
    try:
        fits = 0 < len(host.encode("idna")) <= 253 and host.isprintable()
    except UnicodeError:
        fits = False
    if not fits:
        raise _no_address(host)
    return Place(host, port)


def _no_address(host: str) -> UsageError:
    return UsageError(f"{host!r} is not the address of a Mac.", "Give its IP address or name, such as studio.local.")
