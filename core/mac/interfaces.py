"""Network interfaces of this machine, and the addresses at which other Macs reach it."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import psutil

from core.address import ip_of, is_link_local
from core.events import PathKind
from core.mac.network_kind import listed_kinds, path_kind
from core.mac.system_command import answered

_VIRTUAL: Final = re.compile(r"bridge1\d\d|vmnet|vnic|docker|br-[0-9a-f]{12}|virbr|veth")
ANYWHERE: Final = ("0.0.0.0", "::")


class Interface(NamedTuple):
    """An IPv4 address of this machine, or the IPv6 address that a Thunderbolt cable's port assigned itself."""

    name: str
    address: str
    subnet: str  # "192.168.1.0/24"
    is_up: bool
    kind: PathKind = ""
    rate_mbits: int = 0  # link rate reported by the hardware; 0: unknown

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def is_virtual(self) -> bool:
        return _VIRTUAL.match(self.name) is not None

    @property
    def is_link_local(self) -> bool:
        return is_link_local(self.address)

    @property
    def is_ipv4(self) -> bool:
        """Whether Bonjour uses it: IPv4 only, since macOS refuses IPv4 options on a dual-stack socket."""
        return ":" not in self.address

    def is_on(self, host: str) -> bool:
        address = ip_of(host) if "%" not in host and host != self.address else None
        return address is not None and address in ipaddress.ip_network(self.subnet)


_last_known: tuple[Interface, ...] = ()


def interfaces() -> tuple[Interface, ...]:
    """The interfaces now; the last known ones if macOS fails to list them, as it does while one of them goes."""
    global _last_known
    with suppress(OSError):
        _last_known = interfaces_of(answered(psutil.net_if_addrs()), answered(psutil.net_if_stats()), listed_kinds())
    return _last_known


def interfaces_of(
    addresses: Mapping[str, Sequence[Any]], stats: Mapping[str, Any], listed: Mapping[str, PathKind]
) -> tuple[Interface, ...]:
    """Build interfaces from psutil's addresses and stats, and the kinds that macOS lists, all by interface name."""
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
        for kind in (path_kind(name, listed),)
        for each in found
        if each.family == socket.AF_INET
        or (each.family == socket.AF_INET6 and kind == "Thunderbolt" and is_link_local(each.address))
    )


def _subnet(host: str, netmask: str | None) -> str:
    if ":" in host:
        return "fe80::/10"
    return str(ipaddress.ip_network(f"{host}/{netmask or '255.255.255.255'}", strict=False))


def reachable(found: Iterable[Interface], host: str) -> tuple[Interface, ...]:
    """Interfaces by which other Macs reach a node on `host`. Self-assigned addresses count only on Thunderbolt."""
    usual = [i for i in found if i.is_up and not (i.is_loopback or i.is_virtual)]
    kept = [i for i in usual if not i.is_link_local or i.kind == "Thunderbolt"]
    return tuple(sorted((i for i in kept if host in (*ANYWHERE, i.address)), key=lambda i: i.is_link_local))


def advertised(found: Iterable[Interface], host: str) -> tuple[str, ...]:
    if host not in ANYWHERE:
        return (host,)
    return tuple(dict.fromkeys(i.address for i in reachable(found, host))) or ("127.0.0.1",)


def multicast_addresses(found: Iterable[Interface], host: str) -> tuple[str, ...]:
    if host.startswith("127."):
        return (host,)
    return tuple(dict.fromkeys(i.address for i in found if i.is_up and i.is_ipv4 and not i.is_virtual))


def is_never_dialled(host: str, found: Iterable[Interface]) -> bool:
    """Whether `host` can't be another Mac: it is this machine or on a network inside it, as of virtual machines."""
    address = ip_of(host)
    if address is None or address.is_loopback:
        return False
    return any(
        host == i.address or (i.is_virtual and i.is_up and address in ipaddress.ip_network(i.subnet)) for i in found
    )


def on_subnet(host: str, found: Iterable[Interface]) -> bool | None:
    """Whether `host` is on a subnet of `found`; None for a name, which was not looked up."""
    address = ip_of(host)
    if address is None or address.version != 4:
        return None
    return any(address in ipaddress.ip_network(each.subnet) for each in found if each.is_up)
