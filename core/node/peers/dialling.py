"""Dial the paired Macs that are not linked at all their addresses, and addresses given without a device id."""

from __future__ import annotations

import asyncio
from asyncio.staggered import staggered_race
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from core.address import Place
from core.errors import HandshakeError, MaclusterError, OtherVersion, WrongKey
from core.link.control_link import ControlLink, dial_control
from core.node.base.context import NodeContext
from core.node.base.tasks import Loop
from core.node.peers.addresses import AddressBook
from core.node.peers.linked_mac import LinkedMacChanged
from core.rates import BackOff
from core.trust.identity import parse_text_id, text_id
from core.trust.roster.format import Member

DIAL_S: Final = 5.0
SILENT_S: Final = 0.5
REDIAL_S: Final = (0.2, 0.5, 1.0, 2.0)
SEEK_S: Final = (0.5, 1.0, 2.0, 5.0)
STRANGER_S: Final = 30.0
PATIENCE_S: Final = 3.0


class Dialling:
    """Dials each Mac at one place after the other until it is linked. The Mac with the lower device id dials first; the
    other one waits a moment, so that two links do not cross.

    `is_linked`: whether a Mac needs no dialling; `on_link` gets an authenticated link and may close it. Emits
    LinkedMacChanged for a Mac whose `problem` or known key changed.
    """

    def __init__(
        self,
        node: NodeContext,
        book: AddressBook,
        *,
        is_linked: Callable[[str], bool],
        on_link: Callable[[ControlLink], None],
    ) -> None:
        self._identity, self._store, self._book, self._faults = node.identity, node.store, book, node.faults
        self._signals, self._journal, self._tasks = node.signals, node.journal, node.tasks
        self._is_linked, self._on_link = is_linked, on_link
        self._running: dict[str | Place, asyncio.Task[None]] = {}
        self._short_links: defaultdict[str, BackOff] = defaultdict(lambda: BackOff(REDIAL_S))
        self._short: dict[str, float] = {}  # seconds to wait before dialling a Mac whose links end at once
        self._problems: dict[str, str] = {}
        self._apart: set[str] = set()
        self._news = asyncio.Event()

    async def stop(self) -> None:
        while tasks := list(self._running.values()):  # a task that just ended may have started another
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def problem(self, device_id: str) -> str:
        """Why the last round of dialling failed; "" if that Mac is linked or was not dialled."""
        return self._problems.get(device_id, "")

    def is_apart(self, device_id: str) -> bool:
        """Whether that Mac begins links in another version."""
        return device_id in self._apart

    def reach(self, device_id: str) -> None:
        if self._is_wanted(device_id) and self._book.of(device_id):
            self._begin(device_id, partial(self._dial, device_id))

    def renew(self, device_id: str, on_link: Callable[[ControlLink], None]) -> None:
        self._begin(device_id, partial(self._renew, device_id, on_link))

    def roster_changed(self) -> None:
        roster = self._store.current
        members = [text_id(m.device_id) for m in roster.members] if roster else []
        self._book.keep(members)
        self._news.set()
        self._news = asyncio.Event()
        for device_id in members:
            self.reach(device_id)
        for place in self._book.unclaimed:
            self._begin(place, partial(self._seek, place))

    def linked(self, device_id: str) -> None:
        self._problems.pop(device_id, None)
        self._apart.discard(device_id)
        self._faults.wrong_key.pop(device_id, None)

    def ended(self, device_id: str, *, at_once: bool) -> None:
        """A link ended: dial again, but not in a hot loop if they all end at once."""
        if not at_once:
            self._short_links[device_id].reset()
        self._short[device_id] = self._short_links[device_id].failed() if at_once else 0.0
        self.reach(device_id)

    def _begin(self, key: str | Place, loop: Loop) -> None:
        if key not in self._running:
            task = self._running[key] = self._tasks.restartable("Dialling", loop)
            task.add_done_callback(lambda task: self._done(key, task))

    def _done(self, key: str | Place, task: asyncio.Task[None]) -> None:
        """Dial again if the link has already ended, or if the place now belongs to a member that is not linked."""
        self._running.pop(key, None)
        if not task.cancelled():
            for device_id in [key] if isinstance(key, str) else self._book.known:
                self.reach(device_id)

    def _is_wanted(self, device_id: str) -> bool:
        roster, own = self._store.current, self._identity.device_id
        if roster is None or roster.member(own) is None or device_id == self._identity.text_id:
            return False
        raw = parse_text_id(device_id)
        return not self._is_linked(device_id) and roster.member(raw) is not None and not self._store.is_revoked(raw)

    async def _dial(self, device_id: str) -> None:
        if device_id < self._identity.text_id:
            await asyncio.sleep(PATIENCE_S)
        if short_s := self._short.get(device_id):
            await asyncio.sleep(short_s)
        back_off = BackOff(REDIAL_S)
        while self._is_wanted(device_id):
            await self._round(device_id)
            if self._is_wanted(device_id):
                await self._pause(back_off.failed())

    async def _round(self, device_id: str) -> None:
        """Try every place once until one works; a silent one does not delay the next."""
        places, peer_id = self._book.of(device_id), parse_text_id(device_id)
        calls = [partial(self._call, place, peer_id) for place in places]
        link, _, errors = await staggered_race(calls, SILENT_S)
        if link:
            self._on_link(link)
            return
        wrong, silent, key = "", "", ""
        for place, error in zip(places, errors, strict=True):
            match error:
                case HandshakeError():
                    text = f"At {place}: {_problem_text(error)}"
                    wrong, key = wrong or text, key or (text if isinstance(error, WrongKey) else "")
                case MaclusterError():
                    silent = silent or _problem_text(error)
                case Exception():
                    raise error
        if not self._is_linked(device_id):
            self._apart.discard(device_id)
            if any(isinstance(error, OtherVersion) for error in errors):
                self._apart.add(device_id)
            is_news = key != self._faults.wrong_key.get(device_id, "")
            self._faults.wrong_key[device_id] = key
            self._complain(device_id, wrong or silent, is_news)

    def _complain(self, device_id: str, problem: str, is_news: bool) -> None:
        """Report one problem of all places: a wrong key before silence, else that of the best place."""
        if problem and problem != self._problems.get(device_id):
            if device_id not in self._problems:
                self._journal.warn(f"No control link to {self._name(device_id)}: {problem}")
            self._problems[device_id] = problem
            is_news = True
        if is_news:
            self._signals.emit(LinkedMacChanged(device_id))

    def _name(self, device_id: str) -> str:
        roster = self._store.current
        member = roster.member(parse_text_id(device_id)) if roster else None
        return member.name if member else device_id[:8]

    async def _renew(self, device_id: str, on_link: Callable[[ControlLink], None]) -> None:
        problem = ""
        for place in self._book.of(device_id):
            if not self._is_linked(device_id):
                return
            try:
                on_link(await self._call(place, parse_text_id(device_id), again=True))
            except MaclusterError as error:
                problem = problem or _problem_text(error)
            else:
                return
        why = problem or "no address to dial."
        self._journal.warn(f"The link to {self._name(device_id)} keeps its keys for now: {why}")

    async def _seek(self, place: Place) -> None:
        """Dial until a member answers there; from then on it is dialled as that member."""
        said, attempt = "", 0
        while place in self._book.unclaimed:
            try:
                self._on_link(await self._call(place, None))
            except MaclusterError as error:
                if place not in self._book.unclaimed:
                    return
                if said != error.what:
                    said = error.what
                    self._journal.warn(f"No paired Mac at {place}: {_problem_text(error)}")
                slow = isinstance(error, HandshakeError)
                await self._pause(STRANGER_S if slow else SEEK_S[min(attempt, len(SEEK_S) - 1)])
                attempt += 1

    async def _call(self, place: Place, peer_id: bytes | None, *, again: bool = False) -> ControlLink:
        """Link to that Mac, or to any member there; `again`: even if it is linked. Raises LinkError, NotPaired."""

        def met(member: Member) -> None:
            self._book.met(text_id(member.device_id), place)
            if not again and self._is_linked(text_id(member.device_id)):
                raise HandshakeError(f"{member.name} at {place} is linked already.")

        return await dial_control(
            place.host,
            place.port,
            identity=self._identity,
            cluster=self._store.cluster(),
            peer_id=peer_id,
            timeout_s=DIAL_S,
            on_proof=met,
        )

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until the roster changes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()


def _problem_text(error: MaclusterError) -> str:
    """The error's text, with its fix only if that is specific to this case."""
    return error.what if error.fix == error.fix_by_default else f"{error.what} {error.fix}"
