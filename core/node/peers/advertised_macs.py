"""Macs that Bonjour advertises, as a pure table: bounded, calm when advertisements flap, and never trusted about which
Mac is alive or which one it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from core.address import Place

MAX_RECORDS: Final = 256
MAX_CLAIMS: Final = 8
LINGER_S: Final = 10.0


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was advertised for one device id."""

    name: str
    latest: tuple[Place, ...]  # in the last advertisement
    claims: tuple[Place, ...]  # in all of them, newest first
    windows: tuple[Place, ...] = ()  # of its open pairing window
    vanished_s: float | None = None  # when it was taken back; None while it stands
    contested: bool = False


class SightingChange(NamedTuple):
    """What a sighting did: the ids that had to give way, and whether it contests another one of the same id."""

    evicted: tuple[str, ...] = ()
    contests: bool = False


class AdvertisedMacs:
    """At most 256 records, those of strangers that were not seen for longest give way to others. A member's record
    stays whatever is advertised or taken back. Times in seconds of one monotonic clock.
    """

    def __init__(self, is_member: Callable[[str], bool]) -> None:
        self._is_member = is_member
        self._records: OrderedDict[str, Record] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._records)

    def name(self, device_id: str) -> str:
        """The last advertised name, "" for none."""
        record = self._records.get(device_id)
        return record.name if record else ""

    def places(self, device_id: str) -> tuple[Place, ...]:
        """Where advertisements put it, the newest first."""
        record = self._records.get(device_id)
        return record.claims if record else ()

    def windows(self, device_id: str) -> tuple[Place, ...]:
        """Where advertisements say that its pairing window is open, the newest first."""
        record = self._records.get(device_id)
        return record.windows if record else ()

    def saw(
        self, device_id: str, name: str, places: tuple[Place, ...], windows: tuple[Place, ...] = ()
    ) -> SightingChange:
        """It was advertised at all of these `places`, with its pairing window open at `windows`. Two hosts that claim
        one id make one record with the places of both; the first time, the change says so.
        """
        last = self._records.pop(device_id, None)
        contests = last is not None and last.vanished_s is None and set(last.latest).isdisjoint(places)
        claims = last.claims if last else ()
        if not set(places) <= set(claims):
            claims = tuple(dict.fromkeys((*places, *claims)))[:MAX_CLAIMS]
        already = last is not None and last.contested
        hosts = {place.host for place in places}  # each host speaks for itself only
        elsewhere = (w for w in (last.windows if last else ()) if w.host not in hosts)
        self._records[device_id] = Record(
            name=name,
            latest=places,
            claims=claims,
            windows=(*windows, *elsewhere)[:MAX_CLAIMS],
            contested=already or contests,
        )
        return SightingChange(self._make_room(), contests and not already)

    def vanished(self, device_id: str, now_s: float) -> None:
        """Its advertisement was taken back: a stranger lingers for 10 s, in case it only flaps."""
        if record := self._records.get(device_id):
            self._records[device_id] = msgspec.structs.replace(record, vanished_s=now_s)

    def gone(self, now_s: float) -> tuple[str, ...]:
        """The strangers whose advertisement was taken back and did not come again; they are forgotten."""
        gone = tuple(
            i
            for i, record in self._records.items()
            if record.vanished_s is not None and now_s - record.vanished_s >= LINGER_S and not self._is_member(i)
        )
        for device_id in gone:
            del self._records[device_id]
        return gone

    def _make_room(self) -> tuple[str, ...]:
        if len(self._records) <= MAX_RECORDS:
            return ()
        oldest = next((i for i in self._records if not self._is_member(i)), None)
        if oldest is None:  # more members than a roster can hold
            return ()
        del self._records[oldest]
        self.evicted += 1
        return (oldest,)
