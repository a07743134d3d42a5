"""Addresses of each Mac: proven by its key, then given by the user, then claimed by Bonjour (never replacing others).

Pure, except `read_proven` and `write_proven`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from core.address import Place, checked_place, is_link_local
from core.errors import MaclusterError
from core.node.peers.advertised_macs import MAX_RECORDS, AdvertisedMacs
from core.settings import Home
from core.trust.file_formats import JsonFile
from core.trust.identity import parse_text_id

MAX_MACS: Final = 64
MAX_PLACES: Final = 4

Proven = Mapping[str, tuple[Place, ...]]


class AddressBook:
    """Places by device id, newest first, at most 4 of each kind per Mac; `sightings` has Bonjour's claims.

    `anybody`: places given without a device id. `proven` is the initial value; `on_proof` gets every change of it (at
    most 64 Macs). `is_barred`: whether no other Mac can be at a host now.
    """

    def __init__(
        self,
        sightings: AdvertisedMacs,
        anybody: Iterable[Place] = (),
        proven: Proven | None = None,
        on_proof: Callable[[Proven], None] = lambda _: None,
        is_barred: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._sightings = sightings
        self._anybody = tuple(dict.fromkeys(anybody))
        self._proven = dict(proven or {})
        self._by_hand: dict[str, tuple[Place, ...]] = {}
        self._on_proof = on_proof
        self.is_barred = is_barred

    def of(self, device_id: str) -> tuple[Place, ...]:
        known, by_hand = self._proven.get(device_id, ()), self._by_hand.get(device_id, ())
        return self._open(dict.fromkeys((*known, *by_hand, *self._sightings.record(device_id).claims)))

    def windows(self, device_id: str) -> tuple[Place, ...]:
        return self._open(self._sightings.record(device_id).windows)

    def is_by_hand(self, device_id: str) -> bool:
        return device_id in self._by_hand or not set(self._anybody).isdisjoint(self._proven.get(device_id, ()))

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._proven, *self._by_hand)))

    @property
    def unclaimed(self) -> tuple[Place, ...]:
        """Places given without a device id at which no Mac has proved itself yet."""
        claimed = {place for places in self._proven.values() for place in places}
        return tuple(place for place in self._anybody if place not in claimed)

    def by_hand(self, device_id: str, place: Place) -> None:
        _put(self._by_hand, device_id, place, MAX_RECORDS)

    def met(self, device_id: str, place: Place) -> None:
        """Note that this Mac's key answered there, so no other Mac is there."""
        before = dict(self._proven)
        for other, places in before.items():
            if other != device_id and place in places:
                self._set(other, tuple(p for p in places if p != place))
        _put(self._proven, device_id, place, MAX_MACS)
        if self._proven != before:
            self._on_proof(self._proven)

    def moved(self, old_id: str, new_id: str) -> None:
        for table, most in ((self._proven, MAX_MACS), (self._by_hand, MAX_RECORDS)):
            for place in reversed(table.pop(old_id, ())):
                _put(table, new_id, place, most)
        self._on_proof(self._proven)

    def keep(self, members: Collection[str]) -> None:
        gone = self._proven.keys() - set(members)
        for device_id in gone:
            del self._proven[device_id]
        if gone:
            self._on_proof(self._proven)

    def _open(self, places: Iterable[Place]) -> tuple[Place, ...]:
        """Prefer other places to a cable's address: its link ends when the cable is unplugged."""
        found = (place for place in places if not self.is_barred(place.host))
        return tuple(sorted(found, key=lambda place: is_link_local(place.host)))

    def _set(self, device_id: str, places: tuple[Place, ...]) -> None:
        if places:
            self._proven[device_id] = places
        else:
            del self._proven[device_id]


def _put(table: dict[str, tuple[Place, ...]], device_id: str, place: Place, most: int) -> None:
    """Put `place` first; beyond `most` Macs the one updated longest ago is dropped."""
    others = (p for p in table.pop(device_id, ()) if p != place)
    table[device_id] = (place, *others)[:MAX_PLACES]
    if len(table) > most:
        del table[next(iter(table))]


_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_FILE: Final = JsonFile[Mapping[str, Sequence[tuple[str, int]]]](Home.addresses, dict[str, list[tuple[str, _Port]]])


def read_proven(path: Path) -> Proven:
    """Read the file of `write_proven`. One that can't be used counts as empty: Macs are then searched from scratch."""
    try:
        found = _FILE.read(path)
        for device_id in found:
            parse_text_id(device_id)
        latest = list(found.items())[-MAX_MACS:]
        return {
            device_id: tuple(checked_place(*p) for p in places[:MAX_PLACES]) for device_id, places in latest if places
        }
    except MaclusterError:
        return {}


def write_proven(path: Path, proven: Proven) -> None:
    _FILE.try_to_write(path, proven)  # Bonjour or the user can give the addresses again
