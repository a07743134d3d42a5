"""The interface of an address, by recorded output of macOS, and by this machine's own loopback."""

from __future__ import annotations

import socket
from collections import namedtuple
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from core.mac.interfaces import Interface, advertised, interfaces_of, is_never_dialled, multicast_addresses
from core.mac.network_kind import bind_to, interface_of, link_kind, parse_ports, path_kind

PORTS = """
Hardware Port: Ethernet
Device: en0
Ethernet Address: 3c:a6:f6:00:00:01

Hardware Port: Thunderbolt Bridge
Device: bridge0
Ethernet Address: 36:60:00:00:00:00

Hardware Port: Thunderbolt 1
Device: en2
Ethernet Address: 36:60:00:00:00:01

Hardware Port: Wi-Fi
Device: en1
Ethernet Address: 3c:a6:f6:00:00:02

VLAN Configurations
===================
"""
HOSTS = (("en1", "192.168.1.20"), ("en2", "169.254.9.9"), ("bridge0", "169.254.7.7"))
Address = namedtuple("Address", "address")


@pytest.fixture(autouse=True)
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "lo0": [Address("127.0.0.1"), Address("fe80::1%lo0")],
        "en1": [Address("192.168.1.20"), Address("fe80::4%en1")],
        "bridge0": [Address("169.254.7.7")],
        "utun4": [Address("100.64.0.9")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)


@pytest.mark.parametrize(
    ("name", "port", "kind"),
    [
        pytest.param("bridge0", "Thunderbolt Bridge", "Thunderbolt", id="bridge of all Thunderbolt ports"),
        pytest.param("en2", "Thunderbolt 1", "Thunderbolt", id="one port"),
        pytest.param("en7", "Thunderbolt Ethernet Slot 0", "Ethernet", id="adapter in a Thunderbolt port"),
        pytest.param("en8", "USB 10/100/1000 LAN", "Ethernet", id="USB adapter"),
        pytest.param("en0", "Ethernet", "Ethernet", id="ethernet"),
        pytest.param("en1", "Wi-Fi", "Wi-Fi", id="wi-fi"),
        pytest.param("en9", "iPhone USB", "", id="something else"),
        pytest.param("utun4", "", "tunnel", id="VPN"),
        pytest.param("thunderbolt0", "", "Thunderbolt", id="Linux: cable"),
        pytest.param("wlp3s0", "", "Wi-Fi", id="Linux: wi-fi"),
        pytest.param("eth0", "", "Ethernet", id="Linux: ethernet"),
        pytest.param("lo", "", "", id="Linux: loopback"),
    ],
)
def test_the_kind_of_a_network(name: str, port: str, kind: str) -> None:
    assert path_kind(name, port) == kind


@pytest.mark.parametrize(
    ("platform", "option"),
    [
        pytest.param("darwin", (socket.IPPROTO_IP, 25, 7), id="a Mac"),
        pytest.param("linux", (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"en7\0"), id="Linux"),
    ],
)
def test_a_socket_that_stays_on_one_interface(
    platform: str, option: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, ...]] = []
    monkeypatch.setattr("core.mac.network_kind.sys.platform", platform)
    monkeypatch.setattr(socket, "if_nametoindex", {"en7": 7}.__getitem__)
    bind_to(cast(Any, SimpleNamespace(setsockopt=lambda *words: told.append(words))), "en7")
    assert told == [option]


def test_the_ports_that_macos_lists_have_kinds() -> None:
    assert parse_ports(PORTS) == {
        "en0": "Ethernet",
        "bridge0": "Thunderbolt Bridge",
        "en2": "Thunderbolt 1",
        "en1": "Wi-Fi",
    }
    assert parse_ports("") == parse_ports("Device: en0\n") == {}


@pytest.mark.parametrize(
    ("host", "name"),
    [
        pytest.param("192.168.1.20", "en1", id="ipv4"),
        pytest.param("fe80::4", "en1", id="ipv6 without its scope"),
        pytest.param("10.0.0.1", "", id="nobody's"),
    ],
)
def test_the_interface_of_an_address(host: str, name: str) -> None:
    assert interface_of(host) == name


@pytest.mark.parametrize(
    ("host", "mac", "linux"),
    [
        pytest.param("192.168.1.20", "Wi-Fi (en1)", "en1", id="wi-fi"),
        pytest.param("169.254.7.7", "Thunderbolt Bridge (bridge0)", "bridge0", id="thunderbolt"),
        pytest.param("100.64.0.9", "utun4", "utun4", id="of no known kind"),
        pytest.param("127.0.0.1", "loopback", "loopback", id="loopback"),
        pytest.param("10.0.0.1", "", "", id="nobody's"),
        pytest.param("", "", "", id="none"),
    ],
)
def test_no_more_is_said_than_the_system_says(host: str, mac: str, linux: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.mac.network_kind._ports", lambda: parse_ports(PORTS))
    for platform, kind in (("darwin", mac), ("linux", linux)):
        monkeypatch.setattr("core.mac.network_kind.sys.platform", platform)
        assert link_kind(host) == kind


# ---- addresses where others reach this Mac, and those where they can't

BESIDE = (
    Interface("lo0", "127.0.0.1", "127.0.0.0/8", is_up=True),
    Interface("en0", "192.168.1.20", "192.168.1.0/24", is_up=True),
    Interface("en7", "10.0.0.4", "10.0.0.0/24", is_up=False),
    Interface("utun4", "100.64.0.9", "100.64.0.9/32", is_up=True, kind="tunnel"),
    Interface("bridge0", "169.254.7.7", "169.254.0.0/16", is_up=True, kind="Thunderbolt"),
    Interface("bridge0", "fe80::7", "fe80::/10", is_up=True, kind="Thunderbolt"),
    Interface("en8", "169.254.8.8", "169.254.0.0/16", is_up=True, kind="Ethernet"),
    Interface("bridge100", "192.168.64.1", "192.168.64.0/24", is_up=True),
    Interface("vmnet8", "172.16.5.1", "172.16.5.0/24", is_up=True),
    Interface("vnic0", "10.211.55.2", "10.211.55.0/24", is_up=True),
    Interface("docker0", "172.17.0.1", "172.17.0.0/16", is_up=True),
)


def test_networks_inside_this_mac_are_not_advertised() -> None:
    assert advertised(BESIDE, "0.0.0.0") == ("192.168.1.20", "100.64.0.9", "169.254.7.7", "fe80::7")
    assert advertised(BESIDE, "192.168.1.20") == ("192.168.1.20",)
    assert advertised((), "0.0.0.0") == ("127.0.0.1",)
    assert multicast_addresses(BESIDE, "0.0.0.0") == (
        "127.0.0.1",
        "192.168.1.20",
        "100.64.0.9",
        "169.254.7.7",
        "169.254.8.8",
    )
    assert multicast_addresses(BESIDE, "127.0.0.1") == ("127.0.0.1",)


@pytest.mark.parametrize(
    ("host", "never"),
    [
        pytest.param("192.168.1.20", True, id="own"),
        pytest.param("192.168.1.21", False, id="beside"),
        pytest.param("192.168.64.1", True, id="own address on a bridge"),
        pytest.param("192.168.64.7", True, id="a virtual machine of this Mac"),
        pytest.param("172.17.0.3", True, id="a container"),
        pytest.param("10.211.56.2", False, id="beyond a bridge"),
        pytest.param("127.0.0.1", False, id="Macs simulated on this one"),
        pytest.param("studio.local", False, id="a name"),
        pytest.param("fe80::1", False, id="at the other end of a cable"),
        pytest.param("fe80::7", True, id="own end of a cable"),
    ],
)
def test_no_other_mac_is_looked_for_at_an_address_of_this_one(host: str, never: bool) -> None:
    assert is_never_dialled(host, BESIDE) is never


def test_a_cable_is_told_apart_by_what_the_system_prints() -> None:
    stats = dict.fromkeys(("en1", "en2", "bridge0"), SimpleNamespace(isup=True, speed=0))
    told = {name: [SimpleNamespace(family=socket.AF_INET, address=host, netmask="255.255.0.0")] for name, host in HOSTS}
    for name in ("en1", "en2"):  # a router gives addresses that can be routed
        ipv6 = SimpleNamespace(family=socket.AF_INET6, address=f"fe80::9%{name}", netmask="ffff:ffff:ffff:ffff::")
        told[name] += [ipv6, SimpleNamespace(family=socket.AF_INET6, address="2001:db8::9", netmask=None)]
    found = interfaces_of(told, stats, parse_ports(PORTS))
    assert [(each.name, each.kind, each.is_ipv4) for each in found] == [
        ("en1", "Wi-Fi", True),
        ("en2", "Thunderbolt", True),
        ("en2", "Thunderbolt", False),
        ("bridge0", "Thunderbolt", True),
    ]
    assert advertised(found, "0.0.0.0") == ("192.168.1.20", "169.254.9.9", "fe80::9", "169.254.7.7")
