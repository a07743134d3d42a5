"""What the control plane stands on: an asyncio TLS connection as exact reads and whole writes, and who may knock."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from ipaddress import ip_address
from typing import Final, NamedTuple

from core.errors import LinkLost
from core.link.tls import link_error, tune
from core.settings import SEND_TIMEOUT_S

KNOCKS_PER_S: Final = 4.0
KNOCK_BURST: Final = 8.0
ADDRESSES_KEPT: Final = 256


class Wire:
    """A TLS connection as exact reads and whole writes, its errors translated."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, where: str, host: str) -> None:
        """`where` names the other end in errors; `host` is its address. Raises LinkLost."""
        self._reader, self._writer, self.where, self.remote_host = reader, writer, where, host
        try:
            tune(writer.get_extra_info("socket"))
            self.certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        except (OSError, ValueError) as error:  # asyncio calls a handshake done that the other end broke off
            raise LinkLost(f"{where} closed the link.") from error

    @property
    def is_closed(self) -> bool:
        """Whether either end has closed it."""
        return self._writer.is_closing()

    async def read(self, length: int) -> bytes:
        """Exactly `length` bytes. Raises LinkLost."""
        try:
            return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise LinkLost(f"{self.where} closed the link.") from error
        except OSError as error:
            raise link_error(error, self.where) from error

    def write(self, data: bytes) -> None:
        """Hand over all of `data` in one piece. Raises LinkLost."""
        if self._writer.is_closing():
            raise LinkLost(f"The link to {self.where} is closed.")
        self._writer.write(data)

    async def drain(self) -> None:
        """Until the other end keeps up. Raises LinkLost, LinkTimeout, and the link is closed."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._writer.drain()
        except OSError as error:
            self.close()
            raise link_error(error, self.where) from error

    def close(self) -> None:
        """End the connection; what was handed over still goes out, for at most a second."""
        self._writer.close()

    async def wait_closed(self) -> None:
        """Until the connection is gone."""
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # it broke before it closed: gone all the same


class _Bucket(NamedTuple):
    tokens: float
    at: float


class KnockLimiter:
    """A token bucket an address: 4 connections a second, 8 at once. Loopback is this Mac itself and is let through."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def admit(self, host: str, now: float) -> bool:
        """Whether `host` may connect at `now`, seconds of one monotonic clock."""
        if ip_address(host).is_loopback:
            return True
        last = self._buckets.pop(host, _Bucket(KNOCK_BURST, now))
        tokens = min(KNOCK_BURST, last.tokens + (now - last.at) * KNOCKS_PER_S)
        self._buckets[host] = _Bucket(max(tokens - 1, 0.0), now) if tokens >= 1 else _Bucket(tokens, now)
        if len(self._buckets) > ADDRESSES_KEPT:
            self._buckets.popitem(last=False)
        return tokens >= 1
