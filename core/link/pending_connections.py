"""Unauthenticated connections, and which one to drop when there are too many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, TypeVar

G = TypeVar("G")


class _Group(NamedTuple):
    """Connections from one address that have, or have not, begun a handshake."""

    host: str
    has_begun: bool


class PendingConnections(Generic[G]):
    """Connections by address. To make room, the oldest of the largest group goes, so a flood displaces itself; of equal
    groups, one that has sent nothing.
    """

    def __init__(self) -> None:
        self._group_of: Final[dict[G, _Group]] = {}
        self._groups: Final[dict[_Group, dict[G, None]]] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, guest: G) -> bool:
        return guest in self._group_of

    def __iter__(self) -> Iterator[G]:
        return iter(self._group_of)

    def enter(self, guest: G, host: str) -> None:
        self._put(guest, _Group(host, has_begun=False))

    def has_begun(self, guest: G) -> bool:
        return self._group_of[guest].has_begun

    def begin(self, guest: G) -> None:
        host, has_begun = self._group_of[guest]
        if has_begun:
            return
        self.leave(guest)
        self._put(guest, _Group(host, has_begun=True))

    def leave(self, guest: G) -> None:
        group = self._group_of.pop(guest)
        del self._groups[group][guest]
        if not self._groups[group]:
            del self._groups[group]

    def first_to_go(self) -> G | None:
        if not self._groups:
            return None
        group = max(self._groups, key=lambda each: (len(self._groups[each]), not each.has_begun))
        return next(iter(self._groups[group]))

    def _put(self, guest: G, group: _Group) -> None:
        self._group_of[guest] = group
        self._groups.setdefault(group, {})[guest] = None
