"""When a Mac asks for another's pairing window, and the windows that advertisements name."""

from __future__ import annotations

from core.address import Place
from core.node.pairing.pairing_flow import GIVE_WAY_S, PairingBackoff
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.discovery import read_sighting
from core.trust.pairing import APART_S
from tests.support.macs import mac

HERE, THERE = Place("10.0.0.1", 5000), Place("10.0.0.2", 5000)
ID = mac(0).text_id


def test_the_leader_knocks_at_once_and_the_other_gives_way() -> None:
    assert PairingBackoff(leads=True).due([HERE], 100.0) == HERE
    other = PairingBackoff(leads=False)
    assert other.due([HERE], 100.0) is None
    assert other.due([HERE], 100.0 + GIVE_WAY_S) == HERE


def test_nobody_knocks_at_one_place_again_before_the_window_takes_another_attempt() -> None:
    knocks = PairingBackoff(leads=True)
    knocks.note(HERE, 100.0)
    assert knocks.due([HERE], 100.0 + APART_S - 0.1) is None
    assert knocks.due([HERE, THERE], 100.0) == THERE, "another place does not wait for this one"
    assert knocks.due([HERE], 100.0 + APART_S) == HERE


def test_a_host_speaks_for_its_own_window_only() -> None:
    """Otherwise an advertiser in another Mac's name could hide that Mac's window."""
    table = AdvertisedMacs(lambda _: False)
    real, rogue = Place("10.0.0.1", 4717), Place("10.0.0.9", 4717)
    table.saw(ID, "mini", (real,), (HERE,))
    table.saw(ID, "mini", (rogue,), ())
    assert table.record(ID).windows == (HERE,)
    table.saw(ID, "mini", (real,), ())
    assert table.record(ID).windows == ()


def test_the_port_of_a_window_is_a_port_or_nothing() -> None:
    def port(raw: bytes) -> int | None:
        sighting = read_sighting({b"id": ID.encode(), b"name": b"mini", b"pair": raw}, ["10.0.0.1"], 4717)
        assert sighting
        return sighting.pairing_port

    assert port(b"5000") == 5000
    assert [port(raw) for raw in (b"", b"0", b"65536", b"-1", b"5e3", "５０".encode(), b"9" * 400)] == [None] * 7
