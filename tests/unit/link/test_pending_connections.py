"""The order in which unauthenticated connections are closed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.link.concurrent_handshakes import PendingConnections

MOST = 16


def full(guests: PendingConnections[int]) -> bool:
    return len(guests) > MOST


def test_the_oldest_of_the_largest_group_goes_first_and_of_like_ones_who_says_nothing() -> None:
    guests = PendingConnections[int]()
    assert guests.first_to_go() is None
    for number, host in enumerate("abbc"):
        guests.enter(number, host)
    assert guests.first_to_go() == 1
    guests.begin(1)
    assert guests.first_to_go() == 0, "all are alike in size now, and three say nothing"
    guests.leave(0)
    guests.leave(2)
    guests.leave(3)
    assert (list(guests), guests.first_to_go()) == ([1], 1)


@given(st.lists(st.tuples(st.integers(0, MOST // 2 - 1), st.booleans()), max_size=200), st.booleans())
@pytest.mark.promise("P11")
def test_whoever_floods_from_fewer_addresses_than_there_are_places_displaces_himself(
    flood: list[tuple[int, bool]], begins: bool
) -> None:
    guests = PendingConnections[int]()
    guests.enter(-1, "honest")
    if begins:
        guests.begin(-1)
    for number, (host, speaks) in enumerate(flood):
        guests.enter(number, f"host {host}")
        if speaks:
            guests.begin(number)
        if full(guests) and (first := guests.first_to_go()) is not None:
            guests.leave(first)
    assert -1 in guests


@given(st.lists(st.booleans(), max_size=200))
def test_a_flood_from_the_address_of_an_honest_mac_leaves_him_half_the_places(flood: list[bool]) -> None:
    guests = PendingConnections[int]()
    guests.enter(-1, "all")
    guests.begin(-1)
    begun = 0
    for number, speaks in enumerate(flood):
        guests.enter(number, "all")
        if speaks and begun < MOST // 2 - 1:
            guests.begin(number)
            begun += 1
        if full(guests) and (first := guests.first_to_go()) is not None:
            guests.leave(first)
    assert -1 in guests
