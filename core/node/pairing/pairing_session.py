"""I/O of pairing, around the state machines of `core.trust.pairing`: a plain TCP connection, open only while the
pairing screen is (security.md §2.4). Sizes and times are limited; when one side stops, both forget.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from core.errors import LinkError, MaclusterError, OtherVersion, PairingError
from core.events import PairingChanged
from core.link.listener import plain_host
from core.link.tls_stream import connect_arguments
from core.node.base.message_table import read_clean
from core.node.peers.messages import Greeting
from core.node.peers.versions import own_greeting, why_apart, wire_between
from core.settings import MAX_CONTROL_BODY
from core.trust import pairing
from core.trust.identity import Identity
from core.trust.pairing_attempts import PairingAttempts
from core.trust.roster import joining
from core.trust.roster.acceptance import accept
from core.trust.roster.bundle import decode_bundle
from core.trust.roster.format import Member, Roster, decode
from core.trust.roster.store import RosterStore

Confirm = Callable[[PairingChanged], Awaitable[str]]

MESSAGE_S: Final = 10.0
MAX_NOTE: Final = MAX_CONTROL_BODY + 32
MAX_BUNDLES: Final = 64
READY: Final = "Start pairing there too. A Mac takes one other at a time, 3 attempts in 2 minutes, 10 seconds apart."
AGAIN: Final = "Start again on both Macs."
NOT_READY: Final = PairingError("The other Mac stopped the pairing, or is not ready for it.", READY)
BROKEN_OFF: Final = PairingError(
    "The other Mac stopped: somebody ended it there, or typed other digits. Nothing was kept.", AGAIN
)

_LENGTH: Final = struct.Struct("<I")
_EPOCH: Final = struct.Struct("<Q")


class PairingConnection:
    """A pairing connection: exact reads and whole writes, each within 10 seconds unless given otherwise."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.host = plain_host(writer.get_extra_info("peername") or ("",))

    async def read(self, length: int, timeout_s: float = MESSAGE_S, gone: PairingError = NOT_READY) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._reader.readexactly(length)
        except TimeoutError as error:
            raise PairingError("The other Mac did not answer in time.", READY) from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise PairingError(gone.what, gone.fix) from error

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        try:
            async with asyncio.timeout(MESSAGE_S):
                await self._writer.drain()
        except OSError as error:
            raise PairingError("The other Mac stopped the pairing.") from error

    async def reveal(self) -> bytes:
        """Read P2 or P3: 97 bytes, the last of them the length of the name that follows."""
        head = await self.read(pairing.REVEAL_BYTES)
        return head + await self.read(pairing.reveal_length(head))

    async def reveal_with(self, message: bytes, greeting: Greeting) -> None:
        """Send P2 or P3, and the version of this Mac."""
        said = greeting.to_body()
        await self.write(message + _LENGTH.pack(len(said)) + said)

    async def greeting(self) -> Greeting:
        """Read the other Mac's version. It isn't proven: it only says why a pairing would be of no use."""
        greeting: Greeting = read_clean(await self._read_all("greeting"), Greeting, "greeting")
        return greeting

    async def send_note(self, peer: pairing.Confirmed, note: bytes) -> None:
        packed = peer.pack(note)
        await self.write(_LENGTH.pack(len(packed)) + packed)

    async def receive_note(self, peer: pairing.Confirmed) -> bytes:
        return peer.unpack(await self._read_all("note"))

    async def _read_all(self, what: str) -> bytes:
        (length,) = _LENGTH.unpack(await self.read(_LENGTH.size))
        if length > MAX_NOTE:
            raise PairingError(f"The other Mac sent a {what} of {length} bytes; {MAX_NOTE} are allowed.")
        return await self.read(length)


@dataclass(frozen=True, slots=True)
class PairingSession:
    """This Mac's side. `confirm` shows the digits and returns the typed ones; `chosen`: the only Mac accepted."""

    identity: Identity
    name: str
    store: RosterStore
    attempts: PairingAttempts
    confirm: Confirm
    chosen: str | None = None
    greeting: Greeting = field(default_factory=own_greeting)

    def check_version(self, view: PairingChanged, theirs: Greeting) -> None:
        """Refuse a Mac whose messages this one won't understand, before anybody types digits. Raises OtherVersion."""
        apart = why_apart(view.peer, theirs, self.greeting)
        if apart and wire_between(theirs, self.greeting) is None:
            raise OtherVersion(apart.what, apart.fix)

    def check_chosen(self, view: PairingChanged) -> None:
        if self.chosen is not None and view.device_id != self.chosen:
            what = f"Another Mac than the chosen one answered: {view.peer} ({view.device_id[:8]})."
            raise PairingError(what, "If that is the one you want, choose it.")

    async def finish(
        self, connection: PairingConnection, comparison: pairing.Comparison, *, initiator: bool, timeout_s: float
    ) -> Member:
        """Go from the digits to the roster; returns the peer as a member. Raises PairingError or RosterError."""
        peer = await self._compare(connection, comparison, timeout_s)
        mine = joining.card_of(self.identity, self.store.current)
        await connection.send_note(peer, joining.encode_card(mine))
        theirs = joining.decode_card(await connection.receive_note(peer))
        joining.check_certificate(theirs, peer)
        step = joining.decide(mine, theirs, initiator=initiator)
        match step:
            case "join":
                await self._join(connection, peer, theirs)
            case "found":
                both = joining.found_with(self.identity, self.name, secrets.token_bytes(16), peer, theirs)
                await self._hand_over(connection, peer, both)
            case "admit":
                grown = joining.admit(self.identity, self.store.cluster().roster, peer, theirs)
                await self._hand_over(connection, peer, grown)
        member = self.store.cluster().roster.member(peer.device_id)
        assert member is not None
        with suppress(PairingError):  # a full disk costs an attempt
            self.attempts.ended_well()
        return member

    async def _compare(
        self, connection: PairingConnection, comparison: pairing.Comparison, timeout_s: float
    ) -> pairing.Confirmed:
        """Ask the person while listening, so that a "no" on the other screen takes the question off this one."""
        asking = asyncio.ensure_future(self.confirm(replace(comparison.view, address=connection.host)))
        reading = asyncio.create_task(connection.read(pairing.P4_BYTES, timeout_s, BROKEN_OFF))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait({asking, reading}, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    reading.result()
                p4, pledge = comparison.confirm(await asking)
                await connection.write(p4)
                return pledge.verify(await reading)
        except TimeoutError as error:
            raise PairingError("The digits were not typed in time.", AGAIN) from error
        finally:
            asking.cancel()
            reading.cancel()
            for ended in await asyncio.gather(asking, reading, return_exceptions=True):
                if isinstance(ended, Exception) and not isinstance(ended, MaclusterError):
                    raise ended  # a defect, not to be hidden by the first error

    async def _hand_over(self, connection: PairingConnection, peer: pairing.Confirmed, following: bytes) -> None:
        """P5: adopt the next roster and send the chain in bundles; the other side answers each with its epoch."""
        self.store.adopt(following)
        has, goal = 0, self.store.cluster().roster.epoch
        while has < goal:
            await connection.send_note(peer, self.store.bundle(has))
            note = await connection.receive_note(peer)
            if len(note) != _EPOCH.size or _EPOCH.unpack(note)[0] <= has:
                raise PairingError("The other Mac did not accept the roster.")
            (has,) = _EPOCH.unpack(note)

    async def _join(self, connection: PairingConnection, peer: pairing.Confirmed, theirs: joining.Card) -> None:
        """P5 on the other side. Saves nothing before the whole chain is valid and names both Macs."""
        newest: Roster | None = None
        bundles: list[bytes] = []
        while True:
            bundle = await connection.receive_note(peer)
            offered, before = decode_bundle(bundle), newest
            for roster in map(decode, offered.rosters):
                newest = accept(newest, roster)
            if newest is None or newest == before or len(bundles) == MAX_BUNDLES:
                raise PairingError("The other Mac sent no usable roster.")
            bundles.append(bundle)
            if newest.stand == offered.stand:
                break
            await connection.send_note(peer, _EPOCH.pack(newest.epoch))
        joining.check_joined(newest, self.identity, peer, theirs)
        for bundle in bundles:
            self.store.adopt(bundle)
        await connection.send_note(peer, _EPOCH.pack(newest.epoch))


async def offer_pairing(
    host: str, port: int, session: PairingSession, *, timeout_s: float = pairing.WINDOW_S
) -> Member:
    """Pair with the Mac at `host`:`port`; returns the member. Raises PairingError, OtherVersion or RosterError, saving
    nothing.
    """
    try:
        async with asyncio.timeout(MESSAGE_S):
            reader, writer = await asyncio.open_connection(**await connect_arguments(host, port, MESSAGE_S))
    except (OSError, LinkError) as error:
        raise PairingError(f"{host} port {port} cannot be reached for pairing.", READY) from error
    connection = PairingConnection(reader, writer)
    try:
        offer = pairing.Offer(session.identity, session.name, secrets.token_bytes)
        await connection.write(offer.commit)
        p3, comparison = offer.reveal(await connection.reveal())
        greeting = await connection.greeting()
        session.check_chosen(comparison.view)
        session.attempts.count()  # the receiver of P3 knows the digits
        await connection.reveal_with(p3, session.greeting)
        session.check_version(comparison.view, greeting)  # after P3, so that the other Mac says it too
        return await session.finish(connection, comparison, initiator=True, timeout_s=timeout_s)
    finally:
        writer.close()
