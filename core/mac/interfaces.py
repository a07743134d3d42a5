"""Which networks this machine is on."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import psutil

_TUNNELS: Final = ("utun", "tun", "tap", "ppp", "ipsec", "wg", "tailscale")


class Interface(NamedTuple):
    """An IPv4 address of this machine; `subnet` is "192.168.1.0/24". `is_tunnel`: a VPN, which carries no Bonjour."""

    name: str
    address: str
    subnet: str
    is_up: bool
    is_tunnel: bool

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine is on it."""
        return ipaddress.ip_address(self.address).is_loopback


def interfaces() -> tuple[Interface, ...]:
    """All of them, asked anew."""
    return interfaces_of(psutil.net_if_addrs(), {name: stats.isup for name, stats in psutil.net_if_stats().items()})


def interfaces_of(addresses: Mapping[str, Sequence[Any]], is_up: Mapping[str, bool]) -> tuple[Interface, ...]:
    """What psutil says of addresses by interface, and which interfaces are up."""
    return tuple(
        Interface(
            name=name,
            address=each.address,
            subnet=str(ipaddress.ip_network(f"{each.address}/{each.netmask or '255.255.255.255'}", strict=False)),
            is_up=is_up.get(name, False),
            is_tunnel=name.startswith(_TUNNELS),
        )
        for name, found in addresses.items()
        for each in found
        if each.family == socket.AF_INET
    )


def on_subnet(host: str, found: Iterable[Interface]) -> bool | None:
    """Whether `host` is on the same subnet as one of `found`; None for a name, whose address nobody has looked up."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version != 4:
        return None
    return any(address in ipaddress.ip_network(each.subnet) for each in found if each.is_up)
