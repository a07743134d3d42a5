"""Asyncio TLS connections of the control plane: exact reads and whole writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from core.address import is_link_local
from core.errors import LinkError, LinkLost
from core.link.data_link import SEND_TIMEOUT_S
from core.link.listener import plain_host
from core.link.network_paths import NetworkPath, connect
from core.link.tls import link_error, tune
from core.mac.interfaces import interfaces, reachable

Connect = Callable[[Callable[[], asyncio.BaseProtocol]], Awaitable[tuple[asyncio.Transport, asyncio.BaseProtocol]]]


async def connect_arguments(host: str, port: int, timeout_s: float, interface: str = "") -> dict[str, Any]:
    """Arguments for asyncio's `create_connection`. A link-local address doesn't determine the interface, so there it is
    a connected socket: through `interface`, or the one that answered first. Raises LinkLost, LinkTimeout.
    """
    if interface:
        ways = [NetworkPath(host, interface)]
    elif not is_link_local(host) or "%" in host:
        return {"host": host, "port": port}
    else:
        ends = [each for each in reachable(interfaces(), "0.0.0.0") if each.is_link_local and each.is_on(host)]
        ways = [NetworkPath(host, each.name, each.kind) for each in ends]
    if not ways:
        raise LinkLost(f"{host} is at the other end of a cable that this Mac does not have.")
    sock, _ = await asyncio.to_thread(connect, ways, port, timeout_s)
    sock.setblocking(False)
    return {"sock": sock}


class TlsStream:
    """A TLS connection with exact reads, whole writes and translated errors."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, where: str, host: str) -> None:
        """`where` names the other end in errors; `host` is its address. Raises LinkLost."""
        self._reader, self._writer, self.where, self.remote_host = reader, writer, where, host
        self.local_host = plain_host(writer.get_extra_info("sockname") or ("",))
        self._was_closed = False
        try:
            tune(writer.get_extra_info("socket"))
            self.certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        except (OSError, ValueError) as error:  # asyncio calls a handshake done that the other end broke off
            raise LinkLost(f"{where} closed the link.") from error

    @property
    def is_closed(self) -> bool:
        return self._writer.is_closing()

    async def read(self, length: int) -> bytes:
        try:
            return await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise LinkLost(f"{self.where} closed the link.") from error
        except OSError as error:
            raise self._broken(error) from error

    def write(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise LinkLost(f"The link to {self.where} is closed.")
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the other end keeps up. On LinkLost or LinkTimeout the connection is closed."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._writer.drain()
        except OSError as error:
            problem = self._broken(error)
            self.close()
            raise problem from error

    def close(self) -> None:
        """Close the connection; pending data is still sent for up to a second."""
        self._was_closed = True
        self._writer.close()

    async def wait_closed(self) -> None:
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # it broke before it closed: gone all the same

    def _broken(self, error: OSError) -> LinkError:
        """Translate an error. TLS complains about data arriving after our close; that is no fault of the other end."""
        return LinkLost(f"The link to {self.where} is closed.") if self._was_closed else link_error(error, self.where)


@asynccontextmanager
async def open_tls_stream(connect: Connect, where: str, host: str) -> AsyncIterator[TlsStream]:
    """Open a stream with `connect`, and close it if the body fails. Raises LinkLost, and what `connect` raises."""
    reader = asyncio.StreamReader()
    protocol = _Protocol(reader)
    try:
        transport, _ = await connect(lambda: protocol)
        yield TlsStream(
            reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop()), where, host
        )
    except BaseException:  # also if the caller was cancelled
        if protocol.transport:
            protocol.transport.abort()
        raise


class _Protocol(asyncio.StreamReaderProtocol):
    """Knows the transport once TLS is up: asyncio loses it, open, if `connect` is cancelled then."""

    transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport
        super().connection_made(transport)
