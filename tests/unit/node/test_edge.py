"""When a hop of the ring goes another way, from what two Macs know of their networks."""

from __future__ import annotations

from core.link.ways import Reach, Way
from core.mac.interfaces import Interface
from core.node.peers.paths import direct_ways
from core.node.ring.edge import Edge

CABLE = Way("169.254.1.2", "bridge0", "Thunderbolt")
WIFI = Way("192.168.1.7", "", "Wi-Fi")
VPN = Way("100.64.0.7", "", "tunnel")


def edge(used: Way, *direct: Way) -> Edge:
    made = Edge()
    made.offer(direct)
    made.linked(used)
    return made


def test_a_better_way_is_taken_once_each_time_it_appears() -> None:
    hop = edge(WIFI, WIFI)
    assert hop.reason_to_move([WIFI, VPN], "mini") == ""
    assert hop.reason_to_move([CABLE, WIFI], "mini").startswith("A Thunderbolt path to mini has appeared")
    hop.offer([CABLE, WIFI])
    assert hop.reason_to_move([CABLE, WIFI], "mini") == "", "it is being made"
    hop.linked(WIFI)
    assert hop.reason_to_move([CABLE, WIFI], "mini") == "", "it was tried and does not stand"
    assert hop.reason_to_move([WIFI], "mini") == ""
    assert hop.reason_to_move([CABLE, WIFI], "mini"), "it was gone and is there again"


def test_a_way_that_is_gone_is_left() -> None:
    hop = edge(CABLE, CABLE, WIFI)
    assert hop.reason_to_move([CABLE, WIFI], "mini") == ""
    assert hop.reason_to_move([WIFI], "mini").startswith("The Thunderbolt path to mini is gone")


def test_a_way_that_no_interface_tells_of_is_not_gone() -> None:
    assert edge(VPN).reason_to_move([], "mini") == ""
    assert edge(VPN).reason_to_move([WIFI], "mini").startswith("A Wi-Fi path")


def test_the_ways_between_two_macs() -> None:
    own = (
        Interface("lo0", "127.0.0.1", "127.0.0.0/8", is_up=True),
        Interface("en1", "192.168.1.20", "192.168.1.0/24", is_up=True, kind="Wi-Fi", rate_mbits=600),
        Interface("bridge0", "169.254.7.7", "169.254.0.0/16", is_up=True, kind="Thunderbolt"),
        Interface("bridge100", "192.168.64.1", "192.168.64.0/24", is_up=True),
    )
    told = (
        Reach("192.168.1.7", "Ethernet"),
        Reach("169.254.1.2", "Thunderbolt"),
        Reach("192.168.64.7", "Ethernet"),
        Reach("192.168.1.20", "Wi-Fi"),
        Reach("127.0.0.1"),
        Reach("10.9.9.9", "Ethernet"),
        Reach("no address", "Thunderbolt"),
    )
    assert direct_ways(own, told) == (CABLE, Way("192.168.1.7", "", "Wi-Fi", 600))


def test_where_two_interfaces_lead_there_the_way_says_which() -> None:
    own = (
        Interface("en1", "192.168.1.20", "192.168.1.0/24", is_up=True, kind="Wi-Fi"),
        Interface("en0", "192.168.1.21", "192.168.1.0/24", is_up=True, kind="Ethernet"),
    )
    told = (Reach("192.168.1.7", "Ethernet"),)
    assert direct_ways(own, told) == (Way("192.168.1.7", "en0", "Ethernet"), Way("192.168.1.7", "en1", "Wi-Fi"))
