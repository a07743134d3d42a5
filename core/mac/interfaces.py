"""Which networks this machine is on, and at which of its addresses others meet it."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import psutil

from core.address import is_link_local
from core.events import PathKind
from core.mac.network_kind import hardware_ports, path_kind

_VIRTUAL: Final = re.compile(r"bridge1\d\d|vmnet|vnic|docker|br-[0-9a-f]{12}|virbr|veth")
ANYWHERE: Final = ("0.0.0.0", "::")


class Interface(NamedTuple):
    """An IPv4 address of this machine, or the IPv6 one that the end of a cable gave to itself; `subnet` is
    "192.168.1.0/24". `rate_mbits`: what the hardware promises, 0 where it says nothing.
    """

    name: str
    address: str
    subnet: str
    is_up: bool
    kind: PathKind = ""
    rate_mbits: int = 0

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine is on it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def is_tunnel(self) -> bool:
        """Whether it is a VPN, which carries no Bonjour."""
        return self.kind == "tunnel"

    @property
    def is_virtual(self) -> bool:
        """Whether only the virtual machines and containers of this machine are on it."""
        return _VIRTUAL.match(self.name) is not None

    @property
    def is_link_local(self) -> bool:
        """Whether the interface gave the address to itself, because nobody else did."""
        return is_link_local(self.address)

    @property
    def is_ipv4(self) -> bool:
        """Whether Bonjour speaks by it: not by IPv6, as macOS takes no options of IPv4 for a socket of both."""
        return ":" not in self.address

    def is_on(self, host: str) -> bool:
        """Whether `host`, an address of another Mac, is on the same network."""
        try:
            address = ipaddress.ip_address(host)
            return "%" not in host and host != self.address and address in ipaddress.ip_network(self.subnet)
        except ValueError:
            return False


def interfaces() -> tuple[Interface, ...]:
    """All of them, asked anew."""
    addresses = psutil.net_if_addrs()
    return interfaces_of(addresses, psutil.net_if_stats(), hardware_ports(frozenset(addresses)))


def interfaces_of(
    addresses: Mapping[str, Sequence[Any]], stats: Mapping[str, Any], ports: Mapping[str, str]
) -> tuple[Interface, ...]:
    """What psutil says of addresses and of interfaces, and macOS of its hardware, by interface."""
    return tuple(
        Interface(
            name=name,
            address=(host := each.address.partition("%")[0]),
            subnet=_subnet(host, each.netmask),
            is_up=name in stats and stats[name].isup,
            kind=kind,
            rate_mbits=stats[name].speed if name in stats else 0,
        )
        for name, found in addresses.items()
        for kind in (path_kind(name, ports.get(name, "")),)
        for each in found
        if each.family == socket.AF_INET or (each.family == socket.AF_INET6 and _is_end(each.address, kind))
    )


def _is_end(address: str, kind: PathKind) -> bool:
    return kind == "Thunderbolt" and is_link_local(address)


def _subnet(host: str, netmask: str | None) -> str:
    if ":" in host:
        return "fe80::/10"
    return str(ipaddress.ip_network(f"{host}/{netmask or '255.255.255.255'}", strict=False))


def reachable(found: Iterable[Interface], host: str) -> tuple[Interface, ...]:
    """By which interfaces others meet a Mac that listens on `host`. An address that an interface gave to itself counts
    where a cable between two Macs is all that makes the network: Thunderbolt.
    """
    usual = [i for i in found if i.is_up and not (i.is_loopback or i.is_virtual)]
    kept = [i for i in usual if not i.is_link_local or i.kind == "Thunderbolt"]
    return tuple(sorted((i for i in kept if host in (*ANYWHERE, i.address)), key=lambda i: i.is_link_local))


def advertised(found: Iterable[Interface], host: str) -> tuple[str, ...]:
    """Where others meet a Mac that listens on `host`."""
    if host not in ANYWHERE:
        return (host,)
    return tuple(dict.fromkeys(i.address for i in reachable(found, host))) or ("127.0.0.1",)


def multicast_addresses(found: Iterable[Interface], host: str) -> tuple[str, ...]:
    """On which interfaces Bonjour speaks, by their addresses, for a Mac that listens on `host`."""
    if host.startswith("127."):
        return (host,)
    return tuple(dict.fromkeys(i.address for i in found if i.is_up and i.is_ipv4 and not i.is_virtual))


def is_never_dialled(host: str, found: Iterable[Interface]) -> bool:
    """Whether no other Mac can be at `host`: it is this machine's own, or on a network inside of it. Two Macs that run
    virtual machines often have the same address there.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback:
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
