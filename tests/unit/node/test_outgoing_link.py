"""When a hop of the ring moves to another path, by the known networks of both Macs."""

from __future__ import annotations

import pytest

from core.link.network_paths import ListenAddress, MeasuredPath, NetworkPath, best_path
from core.mac.interfaces import Interface
from core.node.peers.paths import direct_ways
from core.node.ring.outgoing_link import OutgoingLink

CABLE = NetworkPath("169.254.1.2", "bridge0", "Thunderbolt")
WIFI = NetworkPath("192.168.1.7", "", "Wi-Fi")
VPN = NetworkPath("100.64.0.7", "", "tunnel")
WIRED, ADAPTER = NetworkPath("10.0.0.7", "en0", "Ethernet"), NetworkPath("10.0.1.7", "en8", "Ethernet")
ENDS = (("en2", "fe80::2"), ("en3", "fe80::3"))


def edge(used: NetworkPath, *direct: NetworkPath) -> OutgoingLink:
    made = OutgoingLink()
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


@pytest.mark.parametrize(
    ("took", "moves"),
    [
        pytest.param([(9, 1)] * 3, [False, False, True], id="much slower, three times running"),
        pytest.param([(9, 1), (1, 1), (9, 1), (9, 1)], [False] * 4, id="it was only busy"),
        pytest.param([(9, 6)] * 4, [False] * 4, id="somewhat slower"),
        pytest.param([(0.9, 0.1)] * 4, [False] * 4, id="too little to be worth it"),
        pytest.param([(1, 9)] * 4, [False] * 4, id="the quicker one is in use"),
        pytest.param([(None, 1)] * 4, [False] * 4, id="nobody answered on it: its own silence says more"),
    ],
)
def test_a_way_that_became_slow_is_left_for_another_of_its_kind(
    took: list[tuple[float | None, float]], moves: list[bool]
) -> None:
    hop = edge(WIRED, WIRED, ADAPTER, WIFI)
    for times_ms, is_moved in zip(took, moves, strict=True):
        tried = [MeasuredPath(way, ms / 1e3) for way, ms in zip((WIRED, ADAPTER), times_ms, strict=True) if ms]
        assert bool(hop.tried(tried, 0.0, "mini")) is is_moved


def test_ways_are_timed_where_there_is_a_choice_and_let_be_after_a_move() -> None:
    hop, slow = edge(WIRED, WIRED, ADAPTER, WIFI), [MeasuredPath(WIRED, 0.009), MeasuredPath(ADAPTER, 0.001)]
    assert hop.to_try([WIRED, WIFI], 0.0) == []
    assert edge(VPN).to_try([WIRED, ADAPTER], 0.0) == []
    times = [now for now in range(1200) if hop.to_try([WIRED, ADAPTER, WIFI], now) and hop.tried(slow, now, "mini")]
    assert times == [60, 60 + 660], "three times, ten minutes, three times"
    assert hop.to_try([WIRED, ADAPTER, WIFI], 1200) == []


@pytest.mark.parametrize(
    ("carries_mbit", "took", "moves"),
    [
        pytest.param((94, 940), [(1, 1)] * 3, [False, False, True], id="a tenth, three times running"),
        pytest.param((94, 940), [(1, 1), (1, 9), (1, 1), (1, 1)], [False] * 4, id="the other one was busy"),
        pytest.param((940, 2400), [(1, 1)] * 4, [False] * 4, id="less, but too little to be worth it"),
        pytest.param((94, 150), [(1, 1)] * 4, [False] * 4, id="somewhat less"),
        pytest.param((940, 94), [(1, 1)] * 4, [False] * 4, id="the one that carries more is in use"),
        pytest.param((940, 94), [(14, 1)] * 3, [False, False, True], id="but takes twice as long there and back"),
        pytest.param((94, 0), [(1, 1)] * 4, [False] * 4, id="one is not known: the round trip"),
    ],
)
def test_a_way_that_carries_little_is_left_for_another_of_its_kind(
    carries_mbit: tuple[int, int], took: list[tuple[float, float]], moves: list[bool]
) -> None:
    hop = edge(WIRED, WIRED, ADAPTER, WIFI)
    for way, mbit in zip((WIRED, ADAPTER), carries_mbit, strict=True):
        hop.measured(way, mbit * 125_000)
    for times_ms, is_moved in zip(took, moves, strict=True):
        tried = [MeasuredPath(way, ms / 1e3) for way, ms in zip(hop.rated([WIRED, ADAPTER]), times_ms, strict=True)]
        assert bool(hop.tried(tried, 0.0, "mini")) is is_moved


def test_a_ring_that_moved_by_what_ways_carry_does_not_move_back() -> None:
    """The worker links over the path with the better figures, and the rates of both paths are measured again."""
    hop, took_s = edge(WIRED, WIRED, ADAPTER), {WIRED: 0.0004, ADAPTER: 0.0005}
    carries, moved_at = {WIRED: 94 * 125_000, ADAPTER: 940 * 125_000}, []
    for now in range(4000):
        assert hop.reason_to_move([WIRED, ADAPTER], "mini") == ""
        if way := hop.to_measure([WIRED, ADAPTER]):
            hop.measured(way, carries[way] * (9 + now % 3) // 10)
        elif ways := hop.to_try([WIRED, ADAPTER], now):
            tried = [MeasuredPath(each, took_s[way]) for each, way in zip(ways, (WIRED, ADAPTER), strict=True)]
            if hop.tried(tried, now, "mini"):
                moved_at.append(now)
                hop.offer([WIRED, ADAPTER])
                hop.linked(best_path(tried).way)
    assert len(moved_at) == 1
    assert hop.way
    assert hop.way.is_same(ADAPTER)


def test_a_way_is_measured_once_each_time_that_it_appears_or_the_link_is_made_anew() -> None:
    hop, both = edge(WIRED, WIRED), [WIRED, ADAPTER, WIFI]

    def all_measured(*direct: NetworkPath) -> list[NetworkPath]:
        assert hop.reason_to_move(direct, "mini") == ""
        found = []
        while way := hop.to_measure(direct):
            assert hop.to_measure(direct) is None, "one after the other"
            found.append(way)
            hop.measured(way, 1000)
        return found

    assert all_measured(WIRED, WIFI) == [], "no choice"
    assert all_measured(*both) == [WIRED, ADAPTER]
    assert all_measured(*both) == []
    assert [way.bytes_per_s for way in hop.rated(both)] == [1000, 1000, 0]
    assert all_measured(WIRED) == []
    assert [way.bytes_per_s for way in hop.rated(both)] == [1000, 0, 0], "it is gone, and may be another one"
    assert all_measured(*both) == [ADAPTER]
    hop.linked(ADAPTER)
    assert all_measured(*both) == [WIRED, ADAPTER]


def test_the_ways_between_two_macs() -> None:
    own = (
        Interface("lo0", "127.0.0.1", "127.0.0.0/8", is_up=True),
        Interface("en1", "192.168.1.20", "192.168.1.0/24", is_up=True, kind="Wi-Fi", rate_mbits=600),
        Interface("bridge0", "169.254.7.7", "169.254.0.0/16", is_up=True, kind="Thunderbolt"),
        Interface("bridge100", "192.168.64.1", "192.168.64.0/24", is_up=True),
    )
    told = (
        ListenAddress("192.168.1.7", "Ethernet"),
        ListenAddress("169.254.1.2", "Thunderbolt"),
        ListenAddress("192.168.64.7", "Ethernet"),
        ListenAddress("192.168.1.20", "Wi-Fi"),
        ListenAddress("127.0.0.1"),
        ListenAddress("10.9.9.9", "Ethernet"),
        ListenAddress("no address", "Thunderbolt"),
        ListenAddress("fe80::9", "Thunderbolt"),
        ListenAddress("fe80::9%en1", "Thunderbolt"),
    )
    assert direct_ways(own, told) == (CABLE, NetworkPath("192.168.1.7", "", "Wi-Fi", 600))
    ends = tuple(Interface(name, host, "fe80::/10", is_up=True, kind="Thunderbolt") for name, host in ENDS)
    assert direct_ways(ends, told) == (
        NetworkPath("fe80::9", "en2", "Thunderbolt"),
        NetworkPath("fe80::9", "en3", "Thunderbolt"),
    )


def test_where_two_interfaces_lead_there_the_way_says_which() -> None:
    own = (
        Interface("en1", "192.168.1.20", "192.168.1.0/24", is_up=True, kind="Wi-Fi"),
        Interface("en0", "192.168.1.21", "192.168.1.0/24", is_up=True, kind="Ethernet"),
    )
    told = (ListenAddress("192.168.1.7", "Ethernet"),)
    assert direct_ways(own, told) == (
        NetworkPath("192.168.1.7", "en0", "Ethernet"),
        NetworkPath("192.168.1.7", "en1", "Wi-Fi"),
    )
