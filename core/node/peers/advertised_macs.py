"""Macs that Bonjour advertises: a bounded table, calm when they flap; no evidence of identity or life. Pure."""

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
    """Advertisements of one device id."""

    name: str
    latest: tuple[Place, ...]  # in the last advertisement
    claims: tuple[Place, ...]  # in all of them, newest first
    windows: tuple[Place, ...] = ()  # of its open pairing window
    vanished_s: float | None = None  # when it was withdrawn; None while advertised
    contested: bool = False
    version: str = ""  # of macluster, by the last advertisement


_UNSEEN: Final = Record(name="", latest=(), claims=())


class SightingChange(NamedTuple):
    """Effects of a sighting: dropped device ids, and whether another host claims the same id."""

    evicted: tuple[str, ...] = ()
    contests: bool = False


class AdvertisedMacs:
    """At most 256 records: the stranger seen longest ago is dropped, a member's record stays. Times: monotonic."""

    def __init__(self, is_member: Callable[[str], bool]) -> None:
        self._is_member = is_member
        self._records: OrderedDict[str, Record] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._records)

    def record(self, device_id: str) -> Record:
        return self._records.get(device_id, _UNSEEN)

    def saw(
        self, device_id: str, name: str, places: tuple[Place, ...], windows: tuple[Place, ...] = (), version: str = ""
    ) -> SightingChange:
        """Note an advertisement. Hosts that claim one id share a record; the first time, the change reports it."""
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
            version=version,
        )
        return SightingChange(self._make_room(), contests and not already)

    def vanished(self, device_id: str, now_s: float) -> None:
        """Note a withdrawn advertisement: a stranger stays for 10 s, in case it only flaps."""
        if record := self._records.get(device_id):
            self._records[device_id] = msgspec.structs.replace(record, vanished_s=now_s)

    def gone(self, now_s: float) -> tuple[str, ...]:
        """Forget and return strangers whose withdrawn advertisement did not return."""
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
        if oldest is None:  # only members: more than a roster can hold
            return ()
        del self._records[oldest]
        self.evicted += 1
        return (oldest,)
