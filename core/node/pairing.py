"""Pairing over a plain TCP connection that is open only while the pairing screen is (security.md §2.4): the I/O around
the state machines of `core.trust.pairing`. Everything is bounded and timed; when one side stops, both forget.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from core.errors import MaclusterError, PairingError
from core.settings import MAX_CONTROL_BODY
from core.trust.identity import Identity
from core.trust.joining import (
    Card,
    admit,
    card_of,
    check_certificate,
    check_joined,
    decide,
    decode_card,
    encode_card,
    found_with,
)
from core.trust.pairing import (
    APART_S,
    P1_BYTES,
    P4_BYTES,
    REVEAL_BYTES,
    WINDOW_S,
    Answer,
    Comparison,
    Confirmed,
    Offer,
    PairingView,
    Window,
    reveal_length,
)
from core.trust.roster import Member, Roster, RosterStore, accept, decode_bundle

Confirm = Callable[[PairingView], Awaitable[str]]

MESSAGE_S: Final = 10.0
CALLERS: Final = 8
MAX_NOTE: Final = MAX_CONTROL_BODY + 32
MAX_BUNDLES: Final = 64
READY: Final = "Open the pairing screen there. It takes one Mac at a time, 3 attempts in 2 minutes, 10 seconds apart."

_LENGTH: Final = struct.Struct("<I")
_EPOCH: Final = struct.Struct("<Q")


class _Talk:
    """A pairing connection: exact reads and whole writes, each within 10 seconds unless said otherwise."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, length: int, timeout_s: float = MESSAGE_S) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._reader.readexactly(length)
        except TimeoutError as error:
            raise PairingError("The other Mac did not answer in time.") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise PairingError("The other Mac stopped the pairing, or is not ready for it.", READY) from error

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        try:
            async with asyncio.timeout(MESSAGE_S):
                await self._writer.drain()
        except OSError as error:
            raise PairingError("The other Mac stopped the pairing.") from error

    async def reveal(self) -> bytes:
        """P2 or P3: 97 bytes, and as many of name as the last of them says."""
        head = await self.read(REVEAL_BYTES)
        return head + await self.read(reveal_length(head))

    async def tell(self, peer: Confirmed, note: bytes) -> None:
        packed = peer.pack(note)
        await self.write(_LENGTH.pack(len(packed)) + packed)

    async def hear(self, peer: Confirmed) -> bytes:
        (length,) = _LENGTH.unpack(await self.read(_LENGTH.size))
        if length > MAX_NOTE:
            raise PairingError(f"The other Mac sent a note of {length} bytes; {MAX_NOTE} are allowed.")
        return peer.unpack(await self.read(length))


class _Desk:
    """What this Mac brings to a pairing."""

    def __init__(self, identity: Identity, name: str, store: RosterStore, confirm: Confirm) -> None:
        self.identity, self.name, self.store, self.confirm = identity, name, store, confirm

    async def finish(self, talk: _Talk, comparison: Comparison, *, initiator: bool, timeout_s: float) -> Member:
        """From the digits to the roster; the peer as a member. Raises PairingError or RosterError."""
        peer = await self._compare(talk, comparison, timeout_s)
        mine = card_of(self.identity, self.store.current)
        await talk.tell(peer, encode_card(mine))
        theirs = decode_card(await talk.hear(peer))
        check_certificate(theirs, peer)
        step = decide(mine, theirs, initiator=initiator)
        if step == "join":
            await self._join(talk, peer, theirs)
        else:
            self.store.adopt(self._next_roster(step, peer, theirs))
            await self._hand_over(talk, peer)
        member = self.store.cluster().roster.member(peer.device_id)
        assert member is not None
        return member

    def _next_roster(self, step: Literal["found", "admit"], peer: Confirmed, theirs: Card) -> bytes:
        if step == "found":
            return found_with(self.identity, self.name, secrets.token_bytes(16), peer, theirs)
        return admit(self.identity, self.store.cluster().roster, peer, theirs)

    async def _compare(self, talk: _Talk, comparison: Comparison, timeout_s: float) -> Confirmed:
        """Ask the person while listening, so that a "no" on the other screen takes the question off this one."""
        asking = asyncio.ensure_future(self.confirm(comparison.view))
        hearing = asyncio.create_task(talk.read(P4_BYTES, timeout_s))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait({asking, hearing}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    hearing.result()
                p4, pledge = comparison.confirm(await asking)
                await talk.write(p4)
                return pledge.verify(await hearing)
        except TimeoutError as error:
            raise PairingError("The digits were not typed in time.") from error
        finally:
            asking.cancel()
            hearing.cancel()
            await asyncio.gather(asking, hearing, return_exceptions=True)

    async def _hand_over(self, talk: _Talk, peer: Confirmed) -> None:
        """P5: the chain of rosters in as many bundles as it takes; the other side answers each with its epoch."""
        has, goal = 0, self.store.cluster().roster.epoch
        while has < goal:
            await talk.tell(peer, self.store.bundle(has))
            note = await talk.hear(peer)
            if len(note) != _EPOCH.size or _EPOCH.unpack(note)[0] <= has:
                raise PairingError("The other Mac did not take the roster.")
            (has,) = _EPOCH.unpack(note)

    async def _join(self, talk: _Talk, peer: Confirmed, theirs: Card) -> None:
        """P5 on the other side. Nothing is kept before the whole chain holds and names both Macs."""
        newest: Roster | None = None
        bundles: list[bytes] = []
        while True:
            bundle = await talk.hear(peer)
            offered, before = decode_bundle(bundle), newest
            for roster in offered.rosters:
                newest = accept(newest, roster)
            if newest is None or newest == before or len(bundles) == MAX_BUNDLES:
                raise PairingError("The other Mac sent no usable roster.")
            bundles.append(bundle)
            if newest.stand == offered.stand:
                break
            await talk.tell(peer, _EPOCH.pack(newest.epoch))
        check_joined(newest, self.identity, peer, theirs)
        for bundle in bundles:
            self.store.adopt(bundle)
        await talk.tell(peer, _EPOCH.pack(newest.epoch))


async def offer_pairing(
    host: str, port: int, *, identity: Identity, name: str, store: RosterStore, confirm: Confirm
) -> Member:
    """Pair with the Mac that listens at `host`:`port`; the new member. `confirm` shows the digits and returns those
    that the person typed from the other screen. Raises PairingError or RosterError, and then nothing was kept.
    """
    try:
        async with asyncio.timeout(MESSAGE_S):
            reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        raise PairingError(f"{host} port {port} cannot be reached for pairing.", READY) from error
    talk = _Talk(reader, writer)
    try:
        offer = Offer(identity, name, secrets.token_bytes)
        await talk.write(offer.commit)
        p3, comparison = offer.reveal(await talk.reveal())
        await talk.write(p3)
        return await _Desk(identity, name, store, confirm).finish(talk, comparison, initiator=True, timeout_s=WINDOW_S)
    finally:
        writer.close()


class PairingServer:
    """Waits for one Mac to pair with, for as long as its window is open. Closes itself after the first success."""

    def __init__(self, desk: _Desk, window: Window) -> None:
        loop = asyncio.get_running_loop()
        self._desk, self._window, self._clock = desk, window, loop.time
        self._result: asyncio.Future[Member] = loop.create_future()
        self._calls: set[asyncio.Task[None]] = set()
        self._busy = False
        self._server: asyncio.Server | None = None
        self._last = PairingError("Nobody paired while the window was open.")
        self._alarm = loop.call_at(window.closes_at, self.close)
        self.port = 0

    async def listen(self, host: str, port: int) -> None:
        """Open the door. Raises PairingError if the address cannot be had."""
        try:
            self._server = await asyncio.start_server(self._call, host, port, backlog=CALLERS)
        except OSError as error:
            self.close()
            raise PairingError(f"This Mac cannot listen on {host} port {port}.", "Choose another port.") from error
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def wait(self) -> Member:
        """The Mac that was paired. Raises PairingError when the window closed without one."""
        return await asyncio.shield(self._result)

    def close(self) -> None:
        """Close the window; a pairing under way is broken off."""
        self._shut()
        for call in self._calls:
            call.cancel()
        if not self._result.done():
            self._result.set_exception(self._last)
            self._result.exception()  # it counts as seen, even if nobody waits

    async def wait_closed(self) -> None:
        """Until no connection is left."""
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _shut(self) -> None:
        self._alarm.cancel()
        if self._server:
            self._server.close()

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            if len(self._calls) <= CALLERS:
                await self._serve(_Talk(reader, writer))
        except asyncio.CancelledError:
            pass  # only `close` cancels a call, and the call is over then
        finally:
            writer.close()
            self._calls.discard(call)

    async def _serve(self, talk: _Talk) -> None:
        """Whoever knocks costs nothing but this connection; an attempt is counted, and is the only one at its time."""
        try:
            answer = Answer(self._desk.identity, self._desk.name, secrets.token_bytes, await talk.read(P1_BYTES))
            if self._busy:
                raise PairingError("Another Mac is being paired.")
            self._window.admit(self._clock())
        except PairingError:
            return
        self._busy = True
        try:
            member = await self._attempt(talk, answer)
        except MaclusterError as error:
            self._last = PairingError(error.what, error.fix)
            if self._window.is_spent:
                self.close()
        else:
            self._shut()
            if not self._result.done():
                self._result.set_result(member)
        finally:
            self._busy = False

    async def _attempt(self, talk: _Talk, answer: Answer) -> Member:
        await talk.write(answer.reveal)
        comparison = answer.check(await talk.reveal())
        left = self._window.closes_at - self._clock()
        return await self._desk.finish(talk, comparison, initiator=False, timeout_s=left)


async def serve_pairing(
    host: str,
    port: int,
    *,
    identity: Identity,
    name: str,
    store: RosterStore,
    confirm: Confirm,
    window_s: float = WINDOW_S,
    apart_s: float = APART_S,
) -> PairingServer:
    """Open the pairing window of this Mac: 3 attempts, `apart_s` apart, within `window_s`. Raises PairingError."""
    window = Window(asyncio.get_running_loop().time(), window_s=window_s, apart_s=apart_s)
    server = PairingServer(_Desk(identity, name, store, confirm), window)
    await server.listen(host, port)
    return server
