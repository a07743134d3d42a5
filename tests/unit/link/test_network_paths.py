"""The path that a link takes: by table, and over real sockets."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack, closing

import msgspec
import pytest

from core.errors import LinkLost, LinkTimeout
from core.link import network_paths as module
from core.link.network_paths import MeasuredPath, NetworkPath, best_path, connect, measure_paths, slower_kind

CABLE = NetworkPath("169.254.1.2", "en2", "Thunderbolt", 40_000)
WIRED = NetworkPath("192.168.1.7", "en0", "Ethernet", 1_000)
FAST = NetworkPath("10.0.0.7", "en8", "Ethernet", 10_000)
GIGABIT, TENFOLD = (msgspec.structs.replace(w, bytes_per_s=n) for w, n in ((FAST, 115_000_000), (WIRED, 400_000_000)))
TEN_MBIT = msgspec.structs.replace(CABLE, bytes_per_s=1_000_000)
WIFI = NetworkPath("192.168.1.7", "en1", "Wi-Fi", 600)
VPN = NetworkPath("100.64.0.7", "", "tunnel")
OTHER = NetworkPath("172.20.0.7", "en9")
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
NOBODY = "::1"  # the tests listen at IPv4 only, and a Mac has only one address of IPv4 on its loopback


@pytest.mark.parametrize(
    ("tried", "taken"),
    [
        pytest.param([(WIFI, 0.001), (CABLE, 0.002), (WIRED, 0.001)], CABLE, id="the kind first"),
        pytest.param([(WIFI, 0.001), (WIRED, 0.009)], WIRED, id="Ethernet before Wi-Fi"),
        pytest.param([(VPN, 0.001), (WIFI, 0.05)], WIFI, id="a tunnel last"),
        pytest.param([(VPN, 0.001), (OTHER, 0.05)], OTHER, id="what nobody knows before a tunnel"),
        pytest.param([(WIFI, 0.004), (OTHER, 0.0005)], OTHER, id="what nobody knows, where it is quicker"),
        pytest.param([(WIFI, 0.004), (OTHER, 0.005)], WIFI, id="what nobody knows, and slower"),
        pytest.param([(WIRED, 0.0004), (FAST, 0.0008)], WIRED, id="of one kind the shorter round trip"),
        pytest.param([(WIRED, 0.0004), (FAST, 0.00045)], FAST, id="where that is alike, the higher rate"),
        pytest.param([(FAST, 0.0004), (WIRED, 0.00039)], FAST, id="in whatever order"),
        pytest.param([(VPN, 1.0)], VPN, id="the only one"),
        pytest.param([(GIGABIT, 0.0003), (TENFOLD, 0.0005)], TENFOLD, id="measured: more carried outweighs a little"),
        pytest.param([(GIGABIT, 0.0003), (TENFOLD, 0.0009)], GIGABIT, id="measured: but not a lot"),
        pytest.param([(TENFOLD, 0.0003), (TENFOLD, 0.0003)], TENFOLD, id="measured: one as good as the other"),
        pytest.param([(FAST, 0.0003), (TENFOLD, 0.0005)], FAST, id="one was not measured: the round trip"),
        pytest.param([(TENFOLD, 0.0003), (TEN_MBIT, 0.001)], TEN_MBIT, id="measured: still the kind first"),
    ],
)
def test_the_best_way(tried: list[tuple[NetworkPath, float]], taken: NetworkPath) -> None:
    assert best_path([MeasuredPath(*each) for each in tried]).way == taken


def test_a_path_is_as_good_as_its_slower_end() -> None:
    assert slower_kind("Thunderbolt", "Wi-Fi") == slower_kind("Wi-Fi", "Thunderbolt") == "Wi-Fi"
    assert slower_kind("", "Ethernet") == ""


def test_what_does_not_answer_is_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused = NetworkPath(NOBODY, "", "Thunderbolt")
        silent = NetworkPath(
            "198.51.100.1", LOOPBACK, "Ethernet"
        )  # an address bound to loopback can't be reached there
        for ways in (
            [refused, NetworkPath("127.0.0.1", "", "Wi-Fi")],
            [silent, refused, NetworkPath("127.0.0.1", "", "Wi-Fi")],
        ):
            sock, way = connect(ways, port, 30.0)
            with closing(sock):
                assert (way.kind, sock.getpeername()[0]) == ("Wi-Fi", "127.0.0.1")


def test_a_way_that_fails_at_once_does_not_stand() -> None:
    """The system reports the error before anything is sent, and forgets it."""
    nowhere = NetworkPath("255.255.255.255", kind="Thunderbolt")
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock, way = connect([nowhere, NetworkPath("127.0.0.1", kind="Wi-Fi")], server.getsockname()[1], 5.0)
        with closing(sock):
            assert way.host == "127.0.0.1"


def test_all_ways_may_fail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    refused = [NetworkPath("127.0.0.1"), NetworkPath("127.0.0.1")]
    for ways in (refused, refused[:1], [NetworkPath("127.0.0.1", "no such one")]):
        with pytest.raises(LinkLost):
            connect(ways, port, 30.0)


def test_ways_are_timed_and_nothing_stays() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refused = NetworkPath(NOBODY)
        (tried,) = measure_paths([refused, NetworkPath("127.0.0.1", LOOPBACK), NetworkPath("no address")], port, 30.0)
        assert tried.way == NetworkPath("127.0.0.1", LOOPBACK)
        assert tried.rtt_s > 0
        with listener.accept()[0] as sock:
            assert sock.recv(1) == b""


def test_a_way_that_stands_late_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = full.getsockname()[1]
        for _ in range(3):  # these fill the queue, which is never accepted
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        monkeypatch.setattr(module, "GRACE_S", 0.0)
        with pytest.raises(LinkTimeout):
            connect([NetworkPath("127.0.0.1"), NetworkPath("127.0.0.1", LOOPBACK)], port, 0.1)
