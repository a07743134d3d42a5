"""Pairing as a person meets it: shows the digits as an event and waits for those of the other screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from core.errors import Busy, MaclusterError, PairingError, UsageError
from core.events import PairingChanged
from core.node.bus import Bus
from core.node.pairing import PairingServer, offer_pairing, serve_pairing
from core.requests import PairingOffer
from core.trust.identity import Identity
from core.trust.pairing import PairingView
from core.trust.roster import Member, RosterStore


class Introductions:
    """One pairing at a time; `on_paired` runs when a roster with the new member is in force."""

    def __init__(
        self,
        identity: Identity,
        name: str,
        store: RosterStore,
        bus: Bus,
        host: str,
        on_paired: Callable[[Member], Awaitable[None]],
    ) -> None:
        self._identity = identity
        self._name = name
        self._store = store
        self._bus = bus
        self._host = host
        self._on_paired = on_paired
        self._window: PairingServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._typed: asyncio.Future[str] | None = None

    async def open(self) -> int:
        """Open this Mac's pairing window; its port. Raises Busy while a pairing is under way, PairingError."""
        self._check_free()
        self._window = await serve_pairing(
            self._host, 0, identity=self._identity, name=self._name, store=self._store, confirm=self._confirm
        )
        self._task = asyncio.create_task(self._run(self._window.wait()), name="pairing window")
        return self._window.port

    def offer(self, offer: PairingOffer) -> None:
        """Pair with the Mac whose window is open. Raises Busy while a pairing is under way."""
        self._check_free()
        self._task = asyncio.create_task(
            self._run(
                offer_pairing(
                    offer.host,
                    offer.port,
                    identity=self._identity,
                    name=self._name,
                    store=self._store,
                    confirm=self._confirm,
                )
            ),
            name="pairing offer",
        )

    def type(self, digits: str) -> None:
        """The digits that the person read on the other Mac. Raises UsageError when none are asked for."""
        if self._typed is None or self._typed.done():
            raise UsageError("No pairing waits for digits.", "Start pairing on both Macs first.")
        self._typed.set_result(digits)

    async def stop(self) -> None:
        """Break off what is under way."""
        if self._window:
            self._window.close()
            await self._window.wait_closed()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _check_free(self) -> None:
        if self._task and not self._task.done():
            raise Busy("A pairing is under way on this Mac.")

    async def _confirm(self, view: PairingView) -> str:
        self._typed = asyncio.get_running_loop().create_future()
        self._bus.publish(
            PairingChanged(state="compare", peer=view.peer_name, device_id=view.peer_text_id, digits=view.digits)
        )
        return await self._typed

    async def _run(self, pairing: Awaitable[Member]) -> None:
        try:
            member = await pairing
        except MaclusterError as error:
            problem = PairingError(error.what, error.fix).problem
            self._bus.publish(PairingChanged(state="failed", problem=problem))
            return
        await self._on_paired(member)
        self._bus.publish(PairingChanged(state="paired", peer=member.name))
