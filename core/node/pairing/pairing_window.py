"""This Mac's pairing window: a listener, open for at most two minutes, that admits one Mac at a time."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from core.errors import MaclusterError, PairingError
from core.link.listener import caller_address, open_listener
from core.node.pairing.pairing_session import PairingConnection, PairingSession
from core.trust.pairing import APART_S, P1_BYTES, WINDOW_S, PairingAnswer, Window
from core.trust.roster.format import Member

CALLERS: Final = 8
DISTURBED: Final = "Start again on both Macs; if it happens again, somebody on this network disturbs it."


class PairingServer:
    """Waits for one Mac to pair with. Closes after one comparison, whatever its result: a retry needs the user."""

    def __init__(self, session: PairingSession, window: Window) -> None:
        loop = asyncio.get_running_loop()
        self._session, self._window, self._clock = session, window, loop.time
        self._calls: set[asyncio.Task[None]] = set()
        self.is_busy = self._was_asked = False
        self._server: asyncio.Server | None = None
        what = "The other Mac did not connect while the window was open."
        self._last = PairingError(what, "Start pairing on both Macs.")
        self._alarm = loop.call_at(window.closes_at, self.close)
        self.port = 0
        self.result: asyncio.Future[Member] = loop.create_future()

    async def listen(self, host: str, port: int) -> None:
        """Start listening. Raises PairingError if the address can't be used."""
        try:
            door = open_listener(host, port, CALLERS)
            self._server = await asyncio.start_server(partial(self._call, door), sock=door, backlog=CALLERS)
        except OSError as error:
            self.close()
            raise PairingError(f"This Mac cannot listen on {host} port {port}.", "Choose another port.") from error
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def wait(self) -> Member:
        """The paired Mac. Raises PairingError if the window closed without one."""
        return await asyncio.shield(self.result)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Refuse callers during the block, while this Mac calls another window. Not while `is_busy`."""
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False

    def close(self) -> None:
        self._shut()
        for call in self._calls - {asyncio.current_task()}:
            call.cancel()
        if not self.result.done():
            self.result.set_exception(self._last)
            self.result.exception()  # mark as retrieved, even without a waiter

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _shut(self) -> None:
        self._alarm.cancel()
        if self._server:
            self._server.close()

    async def _call(self, door: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            if len(self._calls) <= CALLERS and caller_address(door, writer.get_extra_info("peername") or ("",)):
                await self._serve(PairingConnection(reader, writer))
        except asyncio.CancelledError:
            pass  # only `close` cancels a call, and the call has ended
        finally:
            writer.close()
            self._calls.discard(call)

    async def _serve(self, connection: PairingConnection) -> None:
        """Serve one caller. Counts an attempt before the digits are known; only one runs at a time."""
        try:
            p1 = await connection.read(P1_BYTES)
            answer = PairingAnswer(self._session.identity, self._session.name, secrets.token_bytes, p1)
            if self.is_busy:
                raise PairingError("Another Mac is being paired.")
            self._session.attempts.check()
            self._window.admit(self._clock())
            self._session.attempts.count()
        except PairingError:
            return
        self.is_busy = True
        try:
            member = await self._attempt(connection, answer)
        except MaclusterError as error:
            self._last = PairingError(error.what, error.fix)
            if self._window.is_spent and not self._was_asked:
                self._last = PairingError(f"Every attempt at this Mac's window failed. {error.what}", DISTURBED)
            if self._window.is_spent or self._was_asked:
                self.close()
        else:
            self._shut()
            if not self.result.done():
                self.result.set_result(member)
        finally:
            self.is_busy = False

    async def _attempt(self, connection: PairingConnection, answer: PairingAnswer) -> Member:
        await connection.reveal_with(answer.reveal, self._session.greeting)
        comparison = answer.check(await connection.reveal())
        greeting = await connection.greeting()
        self._session.check_chosen(comparison.view)
        self._was_asked = True
        self._session.check_version(comparison.view, greeting)
        self._last = PairingError("The digits were not typed in time.", "Start pairing again on both Macs.")
        left = self._window.closes_at - self._clock()
        return await self._session.finish(connection, comparison, initiator=False, timeout_s=left)


async def serve_pairing(
    host: str, port: int, session: PairingSession, *, window_s: float = WINDOW_S, apart_s: float = APART_S
) -> PairingServer:
    """Open the pairing window of this Mac: 3 attempts, `apart_s` apart, within `window_s`. Raises PairingError."""
    window = Window(asyncio.get_running_loop().time(), window_s=window_s, apart_s=apart_s)
    server = PairingServer(session, window)
    await server.listen(host, port)
    return server
