"""Finds other Macs by Bonjour. What it finds is a hint for addresses, never identity, never liveness."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec
from zeroconf import Error as ZeroconfError
from zeroconf import IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from core.errors import TrustError
from core.settings import SERVICE_TYPE, VERSION
from core.text import Clean, clean_name
from core.trust.identity import parse_text_id

MAX_RECORDS = 256
RESOLVE_MS = 3000


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What an advertisement claims; nothing in it is proven."""

    device_id: str
    name: Clean
    host: str
    port: int


class Discovery:
    """Advertises this node and browses for others, on `host`'s interface if it is loopback, else on all."""

    def __init__(self, device_id: str, name: str, host: str, on_sight: Callable[[Sighting], None]) -> None:
        self._device_id = device_id
        self._name = name
        self._host = host
        self._on_sight = on_sight
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._seen: set[str] = set()
        self._resolving: set[asyncio.Task[None]] = set()

    async def start(self, port: int) -> None:
        """Advertise `port`. Raises OSError where multicast is not to be had."""
        interfaces = [self._host] if self._host.startswith("127.") else None
        try:
            self._zeroconf = (
                AsyncZeroconf(interfaces=interfaces, ip_version=IPVersion.V4Only) if interfaces else AsyncZeroconf()
            )
            self._browser = AsyncServiceBrowser(self._zeroconf.zeroconf, SERVICE_TYPE, handlers=[self._changed])
            await self._zeroconf.async_register_service(self._service(port))
        except ZeroconfError as error:
            raise OSError(f"Bonjour refused to advertise this Mac: {type(error).__name__}") from error

    async def stop(self) -> None:
        """Say goodbye and stop listening."""
        for task in self._resolving:
            task.cancel()
        if self._browser:
            await self._browser.async_cancel()
        if self._zeroconf:
            await self._zeroconf.async_close()

    def _service(self, port: int) -> AsyncServiceInfo:
        return AsyncServiceInfo(
            SERVICE_TYPE,
            f"{self._device_id}.{SERVICE_TYPE}",
            addresses=[socket.inet_aton(address) for address in self._addresses()],
            port=port,
            properties={"id": self._device_id, "name": self._name, "v": VERSION},
            server=f"{self._device_id}.local.",
        )

    def _addresses(self) -> list[str]:
        if self._host not in ("0.0.0.0", "::"):
            return [self._host]
        import ifaddr

        found = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if isinstance(ip.ip, str)]
        return [ip for ip in found if not ip.startswith(("127.", "169.254."))] or ["127.0.0.1"]

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            self._seen.discard(name)
            return
        if name not in self._seen and len(self._seen) >= MAX_RECORDS:
            return
        self._seen.add(name)
        task = asyncio.ensure_future(self._resolve(zeroconf, service_type, name))
        self._resolving.add(task)
        task.add_done_callback(self._resolving.discard)

    async def _resolve(self, zeroconf: Zeroconf, service_type: str, name: str) -> None:
        info = AsyncServiceInfo(service_type, name)
        if await info.async_request(zeroconf, RESOLVE_MS):
            sighting = read_sighting(info.properties, info.parsed_addresses(IPVersion.V4Only), info.port)
            # one advertisement speaks for one device id, so that a rogue cannot fill the table under a single name
            if sighting and sighting.device_id != self._device_id and name == f"{sighting.device_id}.{service_type}":
                self._on_sight(sighting)


def read_sighting(properties: dict[bytes, bytes | None], addresses: list[str], port: int | None) -> Sighting | None:
    """The claim in a TXT record, or None if it is not one of ours or not clean."""
    raw_id, raw_name = properties.get(b"id") or b"", properties.get(b"name") or b""
    name = clean_name(raw_name)
    if name is None or not addresses or not port:
        return None
    try:
        device_id = raw_id.decode("ascii")
        parse_text_id(device_id)
    except (UnicodeDecodeError, TrustError):
        return None
    return Sighting(device_id=device_id, name=name, host=addresses[0], port=port)
