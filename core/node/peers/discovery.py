"""Find other Macs by Bonjour. Results are hints for addresses, never evidence of identity or of being alive."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_address
from typing import Final

from zeroconf import (  # type: ignore[attr-defined]  # the records are not in its __all__
    DNSAddress,
    DNSService,
    IPVersion,
    ServiceStateChange,
    Zeroconf,
    current_time_millis,
)
from zeroconf import Error as ZeroconfError
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from core.address import Place
from core.mac.interfaces import advertised, interfaces, multicast_addresses
from core.node.base.context import NodeContext
from core.node.base.signals import Signal
from core.node.peers.advertised_macs import MAX_RECORDS
from core.text import Clean, clean_name
from core.trust.identity import is_text_id
from core.version import RELEASE

SERVICE_TYPE: Final = "_macluster._tcp.local."
MAX_TXT: Final = 1024
MAX_HOSTS: Final = 8
MAX_SPEAKERS: Final = 4
RESOLVE_MS: Final = 3000
AT_ONCE: Final = 32
ROUND_S: Final = 0.25


class Sighting(Signal, frozen=True, kw_only=True):
    """A Mac is advertised, with unproven claims. `hosts` have the same port; `pairing_port`: of an open window."""

    device_id: str
    name: Clean
    version: str  # of macluster
    hosts: tuple[str, ...]
    port: int
    pairing_port: int | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(Place(host, self.port) for host in self.hosts)

    @property
    def windows(self) -> tuple[Place, ...]:
        port = self.pairing_port
        return tuple(Place(host, port) for host in self.hosts) if port else ()


class AdvertisementEnded(Signal, frozen=True):
    """A Mac's advertisement was withdrawn, or ran out."""

    device_id: str


class Discovery:
    """Advertises this node and browses for others, on its host's interface if that is loopback, else on all. Emits
    Sighting and AdvertisementEnded.

    `is_member`: looked up first if there are too many names. `is_on`: this node is advertised, and browses;
    `sees_itself`: it received its own advertisement. Macs of another `group`, such as a demo's, are ignored.
    """

    def __init__(self, node: NodeContext, is_member: Callable[[str], bool] = lambda _: False) -> None:
        self._device_id, self._name, self._signals, self._tasks = node.own_id, node.name, node.signals, node.tasks
        self._journal = node.journal
        self._host, self._group, self._is_member = node.config.host, node.config.group, is_member
        self._zeroconf: AsyncZeroconf | None = None
        self._service: AsyncServiceInfo | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._pairing_port: int | None = None
        self._due: OrderedDict[str, None] = OrderedDict()
        self._is_due = asyncio.Event()
        self._resolver: asyncio.Task[None] | None = None
        self._resolving: set[asyncio.Task[None]] = set()
        self._is_contested = False
        self._starting = asyncio.Lock()
        self.is_on = False
        self.sees_itself = False
        self.refused = 0

    async def look(self, port: int) -> None:
        """Advertise `port` and browse; again on the current networks if this runs already. Raises OSError if multicast
        is not available.
        """
        async with self._starting:
            if self._zeroconf is None or self._browser is None or not self.is_on:
                await self.stop()
                await self._start(port)
                return
            await self._browser.async_cancel()
            await self._follow_networks(self._zeroconf)
            self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE_TYPE, handlers=[self._changed])

    async def _start(self, port: int) -> None:
        try:
            self._zeroconf = AsyncZeroconf(interfaces=self._speaks_on(), ip_version=IPVersion.V4Only)
            self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE_TYPE, handlers=[self._changed])
            self._resolver = self._tasks.restartable("Bonjour", partial(self._resolve_due, self._zeroconf.zeroconf))
            self._service = self._describe(port)
            # skip zeroconf's probe for a free name, so that a host which took this Mac's id can't silence it; the key
            # tells them apart
            await self._zeroconf.async_register_service(self._service, cooperating_responders=True)
            self.is_on = True
        except ZeroconfError as error:
            raise OSError("Bonjour refused to advertise this Mac") from error

    async def _follow_networks(self, zeroconf: AsyncZeroconf) -> None:
        service = self._service
        if service is None or service.port is None:
            return
        try:
            await zeroconf.async_update_interfaces(self._speaks_on())
            if set(service.parsed_addresses()) != set(advertised(interfaces(), self._host)):
                self._service = self._describe(service.port)
                await zeroconf.async_update_service(self._service)
        except ZeroconfError as error:
            raise OSError("Bonjour refused to follow this Mac's networks") from error

    async def announce(self, pairing_port: int | None) -> None:
        """Advertise the port of this Mac's pairing window; None: closed."""
        self._pairing_port = pairing_port
        if self._zeroconf and self._service and self._service.port:
            self._service = self._describe(self._service.port)
            try:
                await self._zeroconf.async_update_service(self._service)
            except ZeroconfError as error:
                raise OSError("Bonjour refused to advertise the pairing window") from error

    async def stop(self) -> None:
        tasks = [*self._resolving, *([self._resolver] if self._resolver else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._browser:
            await self._browser.async_cancel()
        if self._zeroconf:
            await self._zeroconf.async_close()

    def _speaks_on(self) -> list[str | int | tuple[tuple[str, int, int], int]]:
        return [*multicast_addresses(interfaces(), self._host)]

    def _describe(self, port: int) -> AsyncServiceInfo:
        more = {"group": self._group} if self._group else {}
        more |= {"pair": str(self._pairing_port)} if self._pairing_port else {}
        return AsyncServiceInfo(
            SERVICE_TYPE,
            f"{self._device_id}.{SERVICE_TYPE}",
            addresses=[ip_address(address).packed for address in advertised(interfaces(), self._host)],
            port=port,
            properties={"id": self._device_id, "name": self._name, "v": RELEASE, **more},
            server=f"{self._device_id}.local.",  # hosts that share a server name would get each other's addresses
        )

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        """Handle a changed name. One that is no device id costs only this call; a new one is looked up in its turn."""
        device_id = name.removesuffix(f".{service_type}")
        if not is_text_id(device_id):
            self.refused += 1
        elif state_change is ServiceStateChange.Removed:
            self._due.pop(device_id, None)
            if device_id != self._device_id:
                self._signals.emit(AdvertisementEnded(device_id))
        else:
            self._due[device_id] = None
            if len(self._due) > MAX_RECORDS:
                del self._due[next((i for i in self._due if not self._is_member(i)), device_id)]
                self.refused += 1
            self._is_due.set()

    async def _resolve_due(self, zeroconf: Zeroconf) -> None:
        """Look up at most 32 names at once and 128 a second, so that a flood overloads neither network nor readers."""
        while True:
            await self._is_due.wait()
            for device_id in sorted(self._due, key=lambda i: not self._is_member(i))[: AT_ONCE - len(self._resolving)]:
                del self._due[device_id]
                task = self._tasks.spawn("A look at an advertisement", self._resolve(zeroconf, device_id))
                self._resolving.add(task)
                task.add_done_callback(self._resolving.discard)
            if not self._due:
                self._is_due.clear()
            await asyncio.sleep(ROUND_S)

    async def _resolve(self, zeroconf: Zeroconf, device_id: str) -> None:
        info = AsyncServiceInfo(SERVICE_TYPE, f"{device_id}.{SERVICE_TYPE}")
        if not await info.async_request(zeroconf, RESOLVE_MS):
            return
        properties = info.properties if len(info.text or b"") <= MAX_TXT else {}
        if not is_of_group(properties, self._group):
            return
        for port, hosts in _listeners(zeroconf, info.name):
            sighting = read_sighting(properties, hosts, port)
            # one advertisement counts for one device id, so that a rogue can't fill the table under a single name
            if sighting is None or sighting.device_id != device_id:
                self.refused += 1
            elif device_id != self._device_id:
                self._signals.emit(sighting)
            elif self._is_own(sighting):
                self.sees_itself = True
            elif not self._is_contested:
                self._is_contested = True
                self._journal.warn("Another host advertises this Mac's id; it cannot prove it, but may delay others.")

    def _is_own(self, sighting: Sighting) -> bool:
        own = self._service
        return own is not None and sighting.port == own.port and sighting.hosts[0] in own.parsed_addresses()


def _listeners(zeroconf: Zeroconf, name: str) -> Iterator[tuple[int, list[str]]]:
    """Port and addresses of every host that advertises under `name`, newest last: IPv4, and IPv6 along a cable.
    AsyncServiceInfo has only the oldest one, which may have moved or be false.
    """
    records = zeroconf.cache.entries_with_name(name)
    services = [r for r in records if isinstance(r, DNSService) and not r.is_expired(current_time_millis())]
    for service in sorted(services, key=lambda r: r.created)[-MAX_SPEAKERS:]:
        records = zeroconf.cache.entries_with_name(service.server)
        found = [ip_address(record.address) for record in records if isinstance(record, DNSAddress)]
        if hosts := [str(host) for host in found if host.version == 4 or host.is_link_local]:
            yield service.port, hosts


def is_of_group(properties: dict[bytes, bytes | None], group: str) -> bool:
    """Whether a TXT record is of a Mac of `group`; "" for a home."""
    return (properties.get(b"group") or b"") == group.encode()


def read_sighting(properties: dict[bytes, bytes | None], addresses: list[str], port: int | None) -> Sighting | None:
    """The claim in a TXT record; None if it is not ours or not clean."""
    raw_id, raw_name = properties.get(b"id") or b"", properties.get(b"name") or b""
    name = clean_name(raw_name)
    if name is None or not addresses or not port:
        return None
    device_id = raw_id.decode("ascii", "replace")
    if not is_text_id(device_id):
        return None
    version, window = clean_name(properties.get(b"v") or b"") or "", _port(properties.get(b"pair") or b"")
    hosts = tuple(addresses[:MAX_HOSTS])
    return Sighting(device_id=device_id, name=name, version=version, hosts=hosts, port=port, pairing_port=window)


def _port(raw: bytes) -> int | None:
    return int(raw) if raw.isdigit() and len(raw) <= 5 and 1 <= int(raw) <= 65535 else None
