"""Addresses of Macs: proven ones come first and stay, whatever is claimed; the tables are bounded and stable."""

from __future__ import annotations

import argparse
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.address import Place
from core.node.options import add_options
from core.node.peers.addresses import MAX_MACS, MAX_PLACES, AddressBook, Proven, read_proven, write_proven
from core.node.peers.advertised_macs import LINGER_S, MAX_CLAIMS, MAX_RECORDS, AdvertisedMacs
from core.trust.identity import text_id
from tests.support.home_files import in_format


def mac_id(number: int) -> str:
    return text_id(number.to_bytes(16, "big"))


def at(number: int, port: int = 4717) -> Place:
    return Place(f"10.0.{number // 256}.{number % 256}", port)


MEMBER, OTHER, STRANGER = mac_id(1), mac_id(2), mac_id(3)
GOOD, GIVEN, CLAIMED, ROGUE = at(1), at(2), at(3), at(66)


def table(*members: str) -> AdvertisedMacs:
    return AdvertisedMacs(lambda device_id: device_id in members)


# ---- the order in which a Mac's addresses are tried


def test_proven_places_come_first_then_those_given_then_those_claimed() -> None:
    sightings = table(MEMBER)
    book = AddressBook(sightings)
    sightings.saw(MEMBER, "studio", (CLAIMED, GOOD))
    book.by_hand(MEMBER, GIVEN)
    assert book.of(MEMBER) == (GIVEN, CLAIMED, GOOD)
    book.met(MEMBER, GOOD)
    assert book.of(MEMBER) == (GOOD, GIVEN, CLAIMED)
    assert book.of(STRANGER) == ()


def test_no_advertisement_moves_a_proven_place() -> None:
    sightings = table(MEMBER)
    book = AddressBook(sightings)
    book.met(MEMBER, GOOD)
    for number in range(1000):
        sightings.saw(MEMBER, "studio", (at(number), ROGUE))
    sightings.vanished(MEMBER, 0.0)
    assert sightings.gone(1e9) == ()
    assert book.of(MEMBER)[0] == GOOD
    assert len(book.of(MEMBER)) <= 1 + MAX_CLAIMS


def test_the_place_where_a_mac_answered_last_is_first_and_four_are_kept() -> None:
    book = AddressBook(table())
    for number in (1, 2, 3, 4, 5, 3):
        book.met(MEMBER, at(number))
    assert book.of(MEMBER) == (at(3), at(5), at(4), at(2))


def test_a_place_belongs_to_the_mac_whose_key_answered_there_last() -> None:
    book = AddressBook(table(), proven={MEMBER: (GOOD, CLAIMED), STRANGER: (GIVEN,)})
    book.met(OTHER, GOOD)
    book.met(OTHER, GIVEN)
    assert book.of(MEMBER) == (CLAIMED,)
    assert book.of(STRANGER) == ()
    assert book.of(OTHER) == (GIVEN, GOOD)


def test_a_place_given_without_an_id_is_unclaimed_until_a_member_proves_itself_there() -> None:
    book = AddressBook(table(), anybody=(GIVEN, at(9), GIVEN))
    assert list(book.unclaimed) == [GIVEN, at(9)]
    book.met(MEMBER, GIVEN)
    assert list(book.unclaimed) == [at(9)]
    assert book.is_by_hand(MEMBER)
    book.keep([OTHER])
    assert list(book.unclaimed) == [GIVEN, at(9)], "who left the cluster claims nothing"


def test_every_change_of_what_is_proven_is_told_once() -> None:
    told: list[dict[str, tuple[Place, ...]]] = []
    book = AddressBook(table(), on_proof=lambda proven: told.append(dict(proven)))
    for _ in range(3):
        book.met(MEMBER, GOOD)
    book.met(OTHER, CLAIMED)
    book.keep([MEMBER])
    book.keep([MEMBER])
    assert told == [{MEMBER: (GOOD,)}, {MEMBER: (GOOD,), OTHER: (CLAIMED,)}, {MEMBER: (GOOD,)}]


small = st.integers(0, 90)


@given(st.lists(st.tuples(st.sampled_from(["met", "given", "saw"]), small, small), max_size=300))
def test_the_book_is_bounded_and_proven_places_lead(events: list[tuple[str, int, int]]) -> None:
    saved: Proven = {}

    def save(proven: Proven) -> None:
        nonlocal saved
        saved = dict(proven)

    sightings = table()
    book = AddressBook(sightings, on_proof=save)
    for kind, number, place in events:
        device_id = mac_id(number)
        if kind == "met":
            book.met(device_id, at(place))
            assert book.of(device_id)[0] == at(place)
        elif kind == "given":
            book.by_hand(device_id, at(place))
        else:
            sightings.saw(device_id, "n", (at(place),))
        assert len(book.of(device_id)) <= 2 * MAX_PLACES + MAX_CLAIMS
    assert len(saved) <= MAX_MACS
    assert all(1 <= len(places) <= MAX_PLACES for places in saved.values())
    owned = [place for places in saved.values() for place in places]
    assert len(owned) == len(set(owned)), "one place, one Mac"


# ---- over a restart


def test_what_was_proven_outlives_the_node_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    assert read_proven(path) == {}
    proven = {MEMBER: (GOOD, Place("studio.local", 1)), OTHER: (Place("fe80::1", 2),)}
    write_proven(path, proven)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_proven(path) == proven


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff" * 40,
        b"[" * 100_000,
        in_format(b"{"),
        in_format(b"[" * 60_000),
        in_format(json.dumps({"no id": [["10.0.0.1", 1]]}).encode()),
        in_format(json.dumps({MEMBER: [["10.0.0.1", 0]]}).encode()),
        in_format(json.dumps({MEMBER: [["10.0.0.1", 65536]]}).encode()),
        in_format(json.dumps({MEMBER: [["", 1]]}).encode()),
        in_format(json.dumps({MEMBER: [["a" * 64, 1]]}).encode()),
        in_format(json.dumps({MEMBER: [["\x1b[2J", 1]]}).encode()),
        in_format(json.dumps({MEMBER: [[1, "10.0.0.1"]]}).encode()),
        in_format(json.dumps({MEMBER: [["10.0.0.1", 1]] * 5000}).encode()),
    ],
)
def test_a_damaged_file_of_addresses_counts_as_none(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "addresses.json"
    path.write_bytes(damage)
    path.chmod(0o600)
    assert read_proven(path) == {}


def test_a_file_of_addresses_that_others_can_write_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    write_proven(path, {MEMBER: (GOOD,)})
    path.chmod(0o666)
    assert read_proven(path) == {}
    path.rename(tmp_path / "aside")
    os.symlink(tmp_path / "aside", path)
    assert read_proven(path) == {}


def test_a_folder_that_takes_no_file_costs_no_error(tmp_path: Path) -> None:
    write_proven(tmp_path / "nowhere" / "addresses.json", {MEMBER: (GOOD,)})


# ---- given by a person


@pytest.mark.parametrize("text", ["studio.local:4717", "192.168.1.7:1", "[fe80::1%en0]:65535"])
def test_the_place_of_another_mac_is_an_option(text: str) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    (place,) = parser.parse_args(["--peer", text]).peer
    assert str(place) == text


def test_a_place_that_is_none_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    with pytest.raises(SystemExit) as refused:
        parser.parse_args(["--peer", "studio:0"])
    assert refused.value.code == 2
    assert "argument --peer" in capsys.readouterr().err


# ---- addresses from Bonjour


def test_a_stranger_that_flaps_stays_and_one_that_is_gone_goes_once() -> None:
    sightings = table()
    for second in range(600):
        assert sightings.saw(STRANGER, "mini", (CLAIMED,)) == ((), False)
        sightings.vanished(STRANGER, float(second))
        assert sightings.gone(second + 0.9) == ()
    assert sightings.gone(599 + LINGER_S - 0.1) == ()
    assert sightings.gone(599 + LINGER_S) == (STRANGER,)
    assert sightings.gone(700) == ()
    assert (len(sightings), sightings.record(STRANGER).name, sightings.record(STRANGER).claims) == (0, "", ())


def test_a_member_stays_though_its_advertisement_is_taken_back() -> None:
    sightings = table(MEMBER)
    sightings.saw(MEMBER, "studio", (CLAIMED,))
    sightings.vanished(MEMBER, 0.0)
    assert sightings.gone(1e6) == ()
    assert sightings.record(MEMBER).claims == (CLAIMED,)


def test_two_hosts_with_one_id_are_one_record_with_both_places_and_are_told_once() -> None:
    sightings = table()
    assert not sightings.saw(STRANGER, "mini", (CLAIMED,)).contests
    assert [sightings.saw(STRANGER, "mini", (p,)).contests for p in (ROGUE, CLAIMED, ROGUE)] == [True, False, False]
    assert len(sightings) == 1
    assert set(sightings.record(STRANGER).claims) == {CLAIMED, ROGUE}


def test_a_mac_that_moves_or_has_several_interfaces_contests_nothing() -> None:
    sightings = table()
    assert not sightings.saw(STRANGER, "mini", (at(1), at(2))).contests
    assert not sightings.saw(STRANGER, "mini", (at(2), at(3))).contests
    sightings.vanished(STRANGER, 1.0)
    assert not sightings.saw(STRANGER, "mini", (at(4),)).contests


def test_the_stranger_seen_longest_ago_gives_way_and_a_member_never() -> None:
    sightings = table(MEMBER)
    sightings.saw(MEMBER, "studio", (GOOD,))
    numbers = range(100, 100 + MAX_RECORDS - 1)
    assert [sightings.saw(mac_id(n), "n", (at(n),)).evicted for n in numbers] == [()] * len(numbers)
    sightings.saw(mac_id(100), "n", (at(100),))
    assert sightings.saw(mac_id(1000), "n", (at(5),)).evicted == (mac_id(101),)
    assert (len(sightings), sightings.evicted) == (MAX_RECORDS, 1)
    for number in range(2000, 2000 + 3 * MAX_RECORDS):
        sightings.saw(mac_id(number), "n", (at(6),))
    assert sightings.record(MEMBER).claims == (GOOD,)
    assert len(sightings) == MAX_RECORDS


def test_advertisements_that_repeat_change_no_order() -> None:
    sightings = table()
    sightings.saw(STRANGER, "mini", (CLAIMED,))
    sightings.saw(STRANGER, "mini", (ROGUE,))
    shown = sightings.record(STRANGER).claims
    for place in (CLAIMED, ROGUE) * 5:
        sightings.saw(STRANGER, "mini", (place,))
        assert sightings.record(STRANGER).claims == shown


def test_what_this_mac_itself_has_is_nobodys_place_until_it_has_it_no_more() -> None:
    sightings, own = table(MEMBER), {"192.168.64.1"}
    book = AddressBook(sightings, proven={MEMBER: (Place("192.168.64.1", 1), GOOD)}, is_barred=own.__contains__)
    shared = Place("192.168.64.1", 2)
    sightings.saw(MEMBER, "studio", (shared, CLAIMED), windows=(shared, GIVEN))
    assert book.of(MEMBER) == (GOOD, CLAIMED)
    assert book.windows(MEMBER) == (GIVEN,)
    own.clear()
    assert book.of(MEMBER) == (Place("192.168.64.1", 1), GOOD, shared, CLAIMED)
    assert book.windows(MEMBER) == (shared, GIVEN)
