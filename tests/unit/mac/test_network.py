"""Which interface an address belongs to, by recorded output of macOS, and by this machine's own loopback."""

from __future__ import annotations

from collections import namedtuple

import psutil
import pytest

from core.mac.network import interface_of, link_kind, parse_ports

PORTS = """
Hardware Port: Ethernet
Device: en0
Ethernet Address: 3c:a6:f6:00:00:01

Hardware Port: Thunderbolt Bridge
Device: bridge0
Ethernet Address: 36:60:00:00:00:00

Hardware Port: Wi-Fi
Device: en1
Ethernet Address: 3c:a6:f6:00:00:02

VLAN Configurations
===================
"""
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


def test_the_ports_that_macos_lists_have_kinds() -> None:
    assert parse_ports(PORTS) == {"en0": "Ethernet", "bridge0": "Thunderbolt Bridge", "en1": "Wi-Fi"}
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
    monkeypatch.setattr("core.mac.network._ports", lambda: parse_ports(PORTS))
    for platform, kind in (("darwin", mac), ("linux", linux)):
        monkeypatch.setattr("core.mac.network.sys.platform", platform)
        assert link_kind(host) == kind
