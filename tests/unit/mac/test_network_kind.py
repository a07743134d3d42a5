"""The interface of an address and its kind, by what macOS lists."""

from __future__ import annotations

import os
import plistlib
import socket
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from core.mac import network_kind
from core.mac.interfaces import Interface, advertised, interfaces_of, is_never_dialled, multicast_addresses
from core.mac.network_kind import bind_to, interface_of, link_kind, listed_kinds, parse_kinds, path_kind

THUNDERBOLT = "IOService:/arm-io/acio0/AppleThunderboltHALType5/AppleThunderboltIPService/AppleThunderboltIPPort/en2"
USB = "IOService:/arm-io/usb-drd1/AX88179A@00200000/CDC NCM Data@1/AppleUSBNCMData/en8"  # named by its chip


def listed(name: str, kind: str, hardware: str = "", called: str = "") -> dict[str, object]:
    """An interface as macOS lists it; `called` is what it shows to people, in their language."""
    told = {"BSD Name": name, "IOBuiltin": True, "SCNetworkInterfaceType": kind, "IOPathMatch": hardware}
    return told | {"SCNetworkInterfaceInfo": {"UserDefinedName": called}}


PLIST = plistlib.dumps(
    {
        "Model": "Mac16,6",
        "Interfaces": [
            listed("en0", "Ethernet", "IOService:/arm-io/apcie/ethernet/en0", "Ethernet"),
            listed("en1", "IEEE80211", "IOService:/arm-io/wlan/en1", "WLAN"),
            listed("en2", "Ethernet", THUNDERBOLT, "雷雳1"),
            listed("en7", "Ethernet", "IOService:/arm-io/acio1/pci-bridge@0/ethernet@0/en7", "Thunderbolt-Ethernet"),
            listed("en8", "Ethernet", USB, "AX88179A"),
            listed("en9", "Ethernet", "IOService:/arm-io/usb-drd0/iPhone@1/AppleUSBEthernetHost/en9", "iPhone-USB"),
            listed("en10", "Ethernet", "IOService:/IOBluetoothBNEPDriver/en10", "Bluetooth-PAN"),
            listed("pdp_ip0", "WWAN"),
            listed("bridge0", "Bridge", "", "Thunderbolt-Brücke"),
            {"SCNetworkInterfaceType": "Ethernet"},
        ],
    }
)
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


@pytest.fixture
def mac_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a Mac's interfaces."""
    file = tmp_path / "NetworkInterfaces.plist"
    file.write_bytes(PLIST)
    monkeypatch.setattr(network_kind, "LISTED", file)
    monkeypatch.setattr("core.mac.network_kind.sys.platform", "darwin")
    return file


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("bridge0", "Thunderbolt", id="bridge of all Thunderbolt ports"),
        pytest.param("en2", "Thunderbolt", id="one port"),
        pytest.param("en7", "Ethernet", id="adapter in a Thunderbolt port"),
        pytest.param("en8", "Ethernet", id="USB adapter that is named by its chip"),
        pytest.param("en0", "Ethernet", id="ethernet"),
        pytest.param("en1", "Wi-Fi", id="wi-fi on a Mac that speaks German"),
        pytest.param("en9", "", id="iPhone"),
        pytest.param("en10", "", id="Bluetooth"),
        pytest.param("pdp_ip0", "", id="something else"),
        pytest.param("en11", "", id="plugged in just now"),
        pytest.param("utun4", "tunnel", id="VPN"),
        pytest.param("thunderbolt0", "Thunderbolt", id="Linux: cable"),
        pytest.param("wlp3s0", "Wi-Fi", id="Linux: wi-fi"),
        pytest.param("eth0", "Ethernet", id="Linux: ethernet"),
        pytest.param("lo", "", id="Linux: loopback"),
    ],
)
def test_the_kind_of_a_network(name: str, kind: str, mac_lists: Path) -> None:
    assert path_kind(name, listed_kinds()) == kind


def test_what_macos_lists_is_read_again_when_it_changes_and_a_failure_is_not_kept(mac_lists: Path) -> None:
    mac_lists.unlink()
    assert listed_kinds() == {"bridge0": "Thunderbolt"}
    for damaged in (b"", b"<plist>", b"<?xml version='1.0'?><plist version='1.0'><dict>"):
        mac_lists.write_bytes(damaged)
        assert listed_kinds() == {"bridge0": "Thunderbolt"}
    mac_lists.write_bytes(plistlib.dumps({"Interfaces": [listed("en11", "Ethernet")]}))
    os.utime(mac_lists, (1, 1))
    assert listed_kinds()["en11"] == "Ethernet"


@pytest.mark.parametrize(
    ("platform", "option"),
    [
        pytest.param("darwin", (socket.IPPROTO_IP, 25, 7), id="a Mac"),
        pytest.param("linux", (socket.SOL_SOCKET, 25, b"en7\0"), id="Linux"),
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
        pytest.param("169.254.7.7", "Thunderbolt (bridge0)", "bridge0", id="thunderbolt"),
        pytest.param("100.64.0.9", "utun4", "utun4", id="of no known kind"),
        pytest.param("127.0.0.1", "loopback", "loopback", id="loopback"),
        pytest.param("10.0.0.1", "", "", id="nobody's"),
        pytest.param("", "", "", id="none"),
    ],
)
def test_no_more_is_said_than_the_system_says(
    host: str, mac: str, linux: str, mac_lists: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_cable_is_told_apart_by_what_the_system_lists() -> None:
    stats = dict.fromkeys(("en1", "en2", "bridge0"), SimpleNamespace(isup=True, speed=0))
    told = {name: [SimpleNamespace(family=socket.AF_INET, address=host, netmask="255.255.0.0")] for name, host in HOSTS}
    for name in ("en1", "en2"):  # a router gives addresses that can be routed
        ipv6 = SimpleNamespace(family=socket.AF_INET6, address=f"fe80::9%{name}", netmask="ffff:ffff:ffff:ffff::")
        told[name] += [ipv6, SimpleNamespace(family=socket.AF_INET6, address="2001:db8::9", netmask=None)]
    found = interfaces_of(told, stats, parse_kinds(PLIST) | {"bridge0": "Thunderbolt"})
    assert [(each.name, each.kind, each.is_ipv4) for each in found] == [
        ("en1", "Wi-Fi", True),
        ("en2", "Thunderbolt", True),
        ("en2", "Thunderbolt", False),
        ("bridge0", "Thunderbolt", True),
    ]
    assert advertised(found, "0.0.0.0") == ("192.168.1.20", "169.254.9.9", "fe80::9", "169.254.7.7")
