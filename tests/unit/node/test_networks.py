from __future__ import annotations

import errno

import psutil
import pytest

from core.mac.interfaces import Interface, interfaces
from core.mac.network_kind import interface_of
from core.node.base.signals import Signals
from core.node.peers.networks import Networks, NetworksChanged

WIFI = Interface("en0", "192.168.1.20", "192.168.1.0/24", is_up=True)
BRIDGE = Interface("bridge100", "192.168.64.1", "192.168.64.0/24", is_up=True)


async def test_a_change_of_addresses_is_told_once_and_holds_from_then_on() -> None:
    found, signals = [WIFI], Signals()
    told: list[NetworksChanged] = []
    signals.on(NetworksChanged, told.append)
    networks = Networks("0.0.0.0", signals, lambda: tuple(found))
    await networks.look()
    assert (told, networks.is_barred(BRIDGE.address)) == ([], False)
    found.insert(0, BRIDGE)
    await networks.look()
    found.reverse()
    await networks.look()
    assert (len(told), networks.is_barred(BRIDGE.address)) == (1, True)
    found[0] = WIFI._replace(rate_mbits=600)
    await networks.look()
    assert len(told) == 1, "the network is the same"
    found[1] = BRIDGE._replace(is_up=False)
    await networks.look()
    assert (len(told), networks.is_barred(BRIDGE.address)) == (2, False)
    assert [each.gone for each in told] == [frozenset(), {BRIDGE.address}]


@pytest.mark.parametrize("fails", [True, False], ids=["raises", "none"])
def test_an_interface_that_goes_while_it_is_asked_for_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    known = interfaces()

    def gone() -> None:
        if fails:
            raise OSError(errno.ENXIO, "Device not configured")

    for question in ("net_if_stats", "net_if_addrs"):
        monkeypatch.setattr(psutil, question, gone)
        assert interfaces() == known != ()
    assert interface_of("127.0.0.1") == ""
