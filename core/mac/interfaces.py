"""Which networks this machine is on, and at which of its addresses others meet it."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import psutil

_TUNNELS: Final = ("utun", "tun", "tap", "ppp", "ipsec", "wg", "tailscale")
_VIRTUAL: Final = re.compile(r"bridge1\d\d|vmnet|vnic|docker|br-[0-9a-f]{12}|virbr|veth")
ANYWHERE: Final = ("0.0.0.0", "::")


class Interface(NamedTuple):
    """An IPv4 address of this machine; `subnet` is "192.168.1.0/24"."""

    name: str
    address: str
    subnet: str
    is_up: bool

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine is on it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def is_tunnel(self) -> bool:
        """Whether it is a VPN, which carries no Bonjour."""
        return self.name.startswith(_TUNNELS)

    @property
    def is_virtual(self) -> bool:
        """Whether only the virtual machines and containers of this machine are on it."""
        return _VIRTUAL.match(self.name) is not None

    @property
    def is_link_local(self) -> bool:
        """Whether the interface gave the address to itself, because nobody else did."""
        return ipaddress.ip_address(self.address).is_link_local


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
        )
        for name, found in addresses.items()
        for each in found
        if each.family == socket.AF_INET
    )


def advertised(found: Iterable[Interface], host: str) -> tuple[str, ...]:
    """Where others meet a Mac that listens on `host`."""
    if host not in ANYWHERE:
        return (host,)
    kept = (i for i in found if i.is_up and not (i.is_loopback or i.is_link_local or i.is_virtual))
    return tuple(dict.fromkeys(i.address for i in kept)) or ("127.0.0.1",)


def multicast_addresses(found: Iterable[Interface], host: str) -> tuple[str, ...]:
    """On which interfaces Bonjour speaks, by their addresses, for a Mac that listens on `host`."""
    if host.startswith("127."):
        return (host,)
    return tuple(dict.fromkeys(i.address for i in found if i.is_up and not i.is_virtual))


def is_never_dialled(host: str, found: Iterable[Interface]) -> bool:
    """Whether no other Mac can be at `host`: it is this machine's own, or on a network inside of it. Two Macs that run
    virtual machines often have the same address there.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.version != 4 or address.is_loopback:
        return False
    return any(
        host == i.address or (i.is_virtual and i.is_up and address in ipaddress.ip_network(i.subnet)) for i in found
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
