"""The current networks of this Mac: docks, Wi-Fi and VPNs come and go while a node runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.link.network_paths import MAX_NETWORK_PATHS, ListenAddress
from core.mac.interfaces import Interface, interfaces, is_never_dialled, reachable
from core.node.base.signals import Signal, Signals


class NetworksChanged(Signal, frozen=True):
    """This Mac's addresses changed; the addresses in `gone` no longer exist."""

    gone: frozenset[str] = frozenset()


class Networks:
    """Emits NetworksChanged. `now`: the interfaces that are up; `host`: this Mac's worker listens there."""

    def __init__(self, host: str, signals: Signals, ask: Callable[[], tuple[Interface, ...]] = interfaces) -> None:
        self._host, self._signals, self._ask = host, signals, ask
        self.now = self._up()

    async def look(self) -> None:
        """Query the system again; a Mac may take a while to list its ports."""
        before, self.now = self.now, await asyncio.to_thread(self._up)
        if _where(self.now) != _where(before):
            self._signals.emit(NetworksChanged(_addresses(before) - _addresses(self.now)))

    def is_barred(self, host: str) -> bool:
        return is_never_dialled(host, self.now)

    @property
    def reach(self) -> tuple[ListenAddress, ...]:
        return tuple(ListenAddress(each.address, each.kind) for each in reachable(self.now, self._host))[
            :MAX_NETWORK_PATHS
        ]

    def _up(self) -> tuple[Interface, ...]:
        return tuple(each for each in self._ask() if each.is_up)


def _addresses(found: tuple[Interface, ...]) -> frozenset[str]:
    return frozenset(each.address for each in found)


def _where(found: tuple[Interface, ...]) -> set[tuple[str, str, str]]:
    """The interfaces without their rate, which changes often on Wi-Fi."""
    return {(each.name, each.address, each.subnet) for each in found}
