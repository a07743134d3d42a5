"""Whether a Mac has RDMA, by the output of its commands; no Mac with Thunderbolt 5 has run this yet."""

from __future__ import annotations

import pytest

from core.mac.interfaces import Interface
from core.mac.rdma import RdmaSeen, device_at, devices_in, look, why_not

LISTED = """\
    device          \t   node GUID
    ------          \t----------------
    rdma_en5        \t4af0dd0c4f9b0000
    rdma_en2        \t4af0dd0c4f9b0001
"""
NONE = """\
    device          \t   node GUID
    ------          \t----------------
"""
READY = RdmaSeen("26.2", "enabled\n", LISTED)
FOUND = [
    Interface("en5", "169.254.10.1", "169.254.0.0/16", True, "Thunderbolt"),
    Interface("en0", "192.168.1.7", "192.168.1.0/24", True, "Ethernet"),
]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (READY, ""),
        (READY._replace(macos="26.10.1"), ""),
        (READY._replace(macos="27"), ""),
        (RdmaSeen(), "needs a Mac"),
        (READY._replace(macos="26.1"), "macOS 26.1; RDMA"),
        (READY._replace(macos="15.7.2"), "macOS 15.7.2; RDMA"),
        (READY._replace(status="disabled\n"), "rdma_ctl enable"),
        (READY._replace(status=""), "rdma_ctl enable"),
        (READY._replace(devices=NONE), "Thunderbolt 5"),
        (READY._replace(devices=""), "Thunderbolt 5"),
    ],
)
def test_what_is_missing_is_said(seen: RdmaSeen, said: str) -> None:
    assert why_not(seen) == "" if not said else said in why_not(seen)


def test_devices_are_read_from_the_list() -> None:
    assert devices_in(LISTED) == ("rdma_en5", "rdma_en2")
    assert devices_in(NONE) == devices_in("device rdma_en5/../x") == ()


@pytest.mark.parametrize(
    ("host", "device"),
    [
        ("169.254.10.1", "rdma_en5"),
        ("fe80::1%en2", "rdma_en2"),
        ("fe80::1%en7", ""),
        ("192.168.1.7", ""),
        ("10.0.0.1", ""),
    ],
)
def test_the_device_is_that_of_the_cable(host: str, device: str) -> None:
    assert device_at(host, FOUND, devices_in(LISTED)) == device


def test_elsewhere_nothing_is_asked() -> None:
    assert why_not(look())
