"""The pairing dialogue: find the other Mac's window, show and take digits, report each step as `PairingChanged`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from core.address import Place
from core.errors import Busy, MaclusterError, PairingError, UsageError
from core.events import PairingChanged
from core.mac.interfaces import advertised, interfaces
from core.node.base.context import NodeContext
from core.node.pairing.pairing_session import PairingSession, offer_pairing
from core.node.pairing.pairing_window import PairingServer, serve_pairing
from core.node.peers.addresses import AddressBook
from core.node.peers.discovery import Discovery
from core.node.trust.roster_enforcement import RosterEnforcement
from core.requests.trust import PairingWindow
from core.settings import CONTROL_PORT
from core.trust.identity import text_id
from core.trust.pairing import APART_S, WINDOW_S
from core.trust.pairing_attempts import PairingAttempts
from core.trust.roster.format import Member
from core.trust.roster.joining import check_may_pair

LOOK_S: Final = 0.25
GIVE_WAY_S: Final = 3.0


class PairingBackoff:
    """When to call a window that was seen; two Macs must not call at once, since a calling one refuses. Pure.

    The Mac that `leads` calls as soon as it sees a window, the other one 3 s later in case the first can't connect.
    The same place is called again only when its window allows another attempt. Times: seconds, monotonic.
    """

    def __init__(self, *, leads: bool) -> None:
        self._wait_s = 0.0 if leads else GIVE_WAY_S
        self._not_before: dict[Place, float] = {}

    def due(self, windows: Iterable[Place], now_s: float) -> Place | None:
        return next((w for w in windows if now_s >= self._not_before.setdefault(w, now_s + self._wait_s)), None)

    def note(self, place: Place, now_s: float) -> None:
        self._not_before[place] = now_s + APART_S + self._wait_s


class PairingFlow:
    """One pairing at a time. Windows are advertised by `discovery`, and found in `book`."""

    def __init__(
        self, node: NodeContext, discovery: Discovery, book: AddressBook, enforcement: RosterEnforcement
    ) -> None:
        self._identity, self._name, self._host, self._store = node.identity, node.name, node.config.host, node.store
        self._attempts = PairingAttempts(node.home.pairing_attempts)
        self._discovery, self._book, self._enforcement = discovery, book, enforcement
        self._bus, self._journal, self._tasks = node.bus, node.journal, node.tasks
        self._task: asyncio.Task[None] | None = None
        self._typed: asyncio.Future[str] | None = None
        self._now = PairingChanged(state="stopped")
        self._until = 0.0
        self._can_be_stopped = False
        self.comparisons = 0

    async def open(self) -> PairingWindow:
        """Open this Mac's window for any Mac. Raises Busy during a pairing, PairingError after too many attempts."""
        window = await self._listen(None)
        try:
            self._check_free()
        except MaclusterError:
            window.close()
            raise
        self._start(self._welcome(window))
        return PairingWindow(port=window.port)

    def pair_with(self, device_id: str) -> None:
        """Pair with the chosen Mac once its user chooses this one. Raises Busy, or UsageError for a Mac not seen."""
        peer = next((p for p in self._bus.now.peers if p.device_id == device_id and not p.is_self), None)
        if peer is None:
            fix = "`macluster peers` lists the Macs seen; if Bonjour is off, use `macluster pair HOST:PORT`."
            raise UsageError(f"No other Mac with the device id {device_id!r} was seen.", fix)
        self._check_free()
        self._start(self._meet(device_id), device_id=device_id, peer=peer.name)

    async def offer(self, place: Place) -> None:
        """Call the window at an address that the user typed, even while waiting. Raises Busy."""
        if self._now.state == "waiting":
            await self._break_off()
        self._check_free()
        self._start(self._connect(place, None))

    def type(self, digits: str) -> None:
        """Take the digits of the other Mac's screen. Raises UsageError if no pairing waits for them."""
        if self._typed is None or self._typed.done():
            raise UsageError("No pairing waits for digits.", "Start pairing on both Macs first.")
        self._typed.set_result(digits)

    async def stop(self) -> None:
        if self._is_running and self._can_be_stopped:
            await self._break_off()
            self._publish(state="stopped", digits="")
        elif self._task:
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def _check_free(self) -> None:
        if self._is_running:
            raise Busy("This Mac is already pairing.", "Stop it first, or wait until it has ended.")
        self._store.check_formats()
        check_may_pair(self._identity, self._store.current)
        self._attempts.check()

    async def _break_off(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _start(self, pairing: Coroutine[Any, Any, Member], **about: str) -> None:
        self._now = PairingChanged(state="stopped")
        self._can_be_stopped = True
        self._publish(state="waiting", closes_at=self._open_for_a_while(), **about)
        self._task = self._tasks.spawn("Pairing", self._run(pairing), self._defect)

    def _open_for_a_while(self) -> float:
        """Start the window's time; returns its end in seconds since the epoch, for display only."""
        self._until = time.monotonic() + WINDOW_S
        return time.time() + WINDOW_S

    def _publish(self, **changes: object) -> None:
        self._now = msgspec.structs.replace(self._now, **changes)
        self._bus.publish(self._now)

    async def _run(self, pairing: Awaitable[Member]) -> None:
        try:
            member = await pairing
        except MaclusterError as error:
            problem = PairingError(error.what, error.fix).problem
            self._publish(state="failed", digits="", problem=problem)
            return
        self._can_be_stopped = False  # it is in the roster now
        await self._admit(member, self._now.address)
        self._publish(state="paired", peer=member.name, digits="")

    async def _admit(self, member: Member, host: str) -> None:
        device_id = text_id(member.device_id)
        if not self._book.of(device_id):  # without Bonjour: assume its node uses the default port
            self._book.by_hand(device_id, Place(host, CONTROL_PORT))
        epoch = self._store.cluster().roster.epoch
        self._journal.info(f"Paired with {member.name}; the roster is at epoch {epoch}.")
        await self._enforcement.follow()

    def _defect(self) -> None:
        problem = PairingError("A defect of macluster on this Mac ended it.", "The log of its node says where.").problem
        self._publish(state="failed", digits="", problem=problem)

    async def _meet(self, device_id: str) -> Member:
        """Call the other window if it is open; else open this one, and look out for the other."""
        backoff = PairingBackoff(leads=self._identity.text_id < device_id)
        for place in self._book.windows(device_id):
            backoff.note(place, time.monotonic())
            if member := await self._try(place, device_id):
                return member
        async with self._opened(await self._listen(device_id)) as window:
            while not (await asyncio.wait({window.result}, timeout=LOOK_S))[0]:
                place_due = backoff.due(self._book.windows(device_id), time.monotonic())
                if place_due is None or window.is_busy:
                    continue
                backoff.note(place_due, time.monotonic())
                with window.held():
                    if member := await self._try(place_due, device_id):
                        return member
            return window.result.result()

    async def _try(self, place: Place, device_id: str) -> Member | None:
        """Connect to an advertised place; None if no comparison started there."""
        before = self.comparisons
        try:
            return await self._connect(place, device_id)
        except PairingError:
            if self.comparisons > before:
                raise
            return None

    async def _connect(self, place: Place, chosen: str | None) -> Member:
        left_s = max(0.0, self._until - time.monotonic())
        return await offer_pairing(place.host, place.port, self._session(chosen), timeout_s=left_s)

    async def _welcome(self, window: PairingServer) -> Member:
        async with self._opened(window):
            return await window.wait()

    async def _listen(self, chosen: str | None) -> PairingServer:
        return await serve_pairing(self._host, 0, self._session(chosen))

    def _session(self, chosen: str | None) -> PairingSession:
        return PairingSession(self._identity, self._name, self._store, self._attempts, self._confirm, chosen)

    @asynccontextmanager
    async def _opened(self, window: PairingServer) -> AsyncIterator[PairingServer]:
        try:
            here = Place(advertised(interfaces(), self._host)[0], window.port)
            self._publish(address=str(here), closes_at=self._open_for_a_while())
            with suppress(OSError):  # the user can still read out the address
                await self._discovery.announce(window.port)
            yield window
        finally:
            window.close()
            await window.wait_closed()
            with suppress(OSError):
                await self._discovery.announce(None)

    async def _confirm(self, view: PairingChanged) -> str:
        self.comparisons += 1
        self._typed = asyncio.get_running_loop().create_future()
        self._now = msgspec.structs.replace(view, closes_at=self._now.closes_at)
        self._bus.publish(self._now)
        return await self._typed
