"""Control links to every paired Mac: who is there, how far away, and messages to and from them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any

from core.errors import LinkError, LinkLost, MaclusterError
from core.link.control import ControlLink, ControlServer, dial_control, serve_control
from core.link.frames import FrameType
from core.node.journal import Journal
from core.node.messages import AnyMessage, Bye, Ping, Pong, Status, from_frame, to_frame
from core.settings import BEAT_S, DEAD_S, SUSPECT_S
from core.trust.identity import Identity, parse_text_id, text_id
from core.trust.levels import carries_prompts
from core.trust.roster import RosterStore

DIAL_S = 5.0
REDIAL_S = (0.2, 0.5, 1.0, 2.0)
PATIENCE_S = 3.0
RTT_SAMPLES = 16
SHORT_S = 5.0


class Contact:
    """A live control link and what it has told us."""

    def __init__(self, link: ControlLink, dialled: bool) -> None:
        self.link = link
        self.dialled = dialled
        self.heard_at = monotonic()
        self._rtts: deque[float] = deque(maxlen=RTT_SAMPLES)
        self.status: Status | None = None
        self.suspect = False
        self.goodbye = ""
        self.since = self.heard_at
        self.beat: asyncio.Task[None] | None = None

    def timed(self, rtt_s: float) -> None:
        """A ping came back after `rtt_s` seconds."""
        self._rtts.append(rtt_s)

    @property
    def rtt_s(self) -> float | None:
        """The shortest of the last pings: what the network takes, without what the two nodes were busy with."""
        return min(self._rtts, default=None)


class Mesh:
    """One link to each paired Mac whose address is known. The Mac with the lower device id dials; the other one waits
    a moment first, so that two links do not cross.
    """

    def __init__(
        self,
        identity: Identity,
        store: RosterStore,
        journal: Journal,
        *,
        status: Callable[[], Status],
        on_change: Callable[[str], None],
        on_message: Callable[[str, AnyMessage], Awaitable[None]],
        on_down: Callable[[str, LinkLost], Coroutine[Any, Any, None]],
    ) -> None:
        self._identity = identity
        self._store = store
        self._journal = journal
        self._status = status
        self._on_change = on_change
        self._on_message = on_message
        self._on_down = on_down
        self._addresses: dict[str, tuple[str, int]] = {}
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: ControlServer | None = None
        self._short: dict[str, int] = {}
        self.contacts: dict[str, Contact] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen for control links; the port."""
        self._server = await serve_control(
            host, port, identity=self._identity, cluster=self._store.cluster, on_link=self._accepted
        )
        self._spawn(self._beat())
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, reason: str) -> None:
        """Say goodbye and close every link."""
        for device_id in list(self.contacts):
            await self.send(device_id, Bye(reason=reason))
        contacts, self.contacts = self.contacts, {}
        for task in [*self._tasks, *self._dialling.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._dialling.values(), return_exceptions=True)
        for contact in contacts.values():
            contact.link.close()
        if self._server:
            self._server.close()

    def know(self, device_id: str, host: str, port: int) -> None:
        """An address for a Mac; dial it if it is paired and not linked."""
        self._addresses[device_id] = (host, port)
        self.reach(device_id)

    def reach(self, device_id: str) -> None:
        """Dial a paired Mac in the background until it is linked."""
        paired = self._store.current and self._store.current.member(parse_text_id(device_id))
        if not paired or device_id == self._identity.text_id or device_id not in self._addresses:
            return
        if device_id not in self.contacts and device_id not in self._dialling:
            task = asyncio.create_task(self._dial(device_id), name=f"dial {device_id[:8]}")
            self._dialling[device_id] = task
            task.add_done_callback(lambda task: self._dialled(device_id, task))

    def _dialled(self, device_id: str, task: asyncio.Task[None]) -> None:
        """A link may have ended again before its dialling did: then nobody else would dial."""
        self._dialling.pop(device_id, None)
        if not task.cancelled():
            self.reach(device_id)

    async def roster_changed(self) -> None:
        """Push the new roster to every linked Mac, end the links to those it no longer trusts, and dial the members
        that are not linked.
        """
        roster = self._store.cluster().roster
        for device_id, contact in list(self.contacts.items()):
            await self._send_roster(contact)
            member = roster.member(contact.link.peer_id)
            if member is None or not carries_prompts(member.level):
                contact.goodbye = "It is no longer paired."
                self._spawn(self._ended(device_id, contact, ""))
        for device_id in list(self._addresses):
            self.reach(device_id)

    async def send(self, device_id: str, message: AnyMessage) -> bool:
        """Send a message; False if that Mac is not linked (its going down is told by `on_down`)."""
        contact = self.contacts.get(device_id)
        return contact is not None and await self._send_raw(contact, *to_frame(message))

    def host_of(self, device_id: str) -> str:
        """The address at which that Mac is linked. Raises LinkLost."""
        contact = self.contacts.get(device_id)
        if contact is None:
            raise LinkLost(f"Mac {device_id[:8]} is not linked.")
        return contact.link.remote_host

    async def _send_roster(self, contact: Contact) -> None:
        await self._send_raw(contact, FrameType.ROSTER, self._store.bundle(contact.link.peer_epoch))

    async def _send_raw(self, contact: Contact, kind: FrameType, body: bytes) -> bool:
        try:
            await contact.link.send(kind, body)
        except LinkError:
            contact.link.close()
            return False
        return True

    async def _dial(self, device_id: str) -> None:
        if device_id < self._identity.text_id:
            await asyncio.sleep(PATIENCE_S)
        if short := self._short.get(device_id, 0):  # links that ended at once: do not dial in a hot loop
            await asyncio.sleep(REDIAL_S[min(short, len(REDIAL_S)) - 1])
        attempt = 0
        while device_id not in self.contacts:
            host, port = self._addresses[device_id]
            try:
                link = await dial_control(
                    host,
                    port,
                    identity=self._identity,
                    cluster=self._store.cluster(),
                    peer_id=parse_text_id(device_id),
                    timeout_s=DIAL_S,
                )
            except MaclusterError as error:
                if attempt == 0:
                    self._journal.warn(f"No control link to {device_id[:8]}: {error.what}")
                await asyncio.sleep(REDIAL_S[min(attempt, len(REDIAL_S) - 1)])
                attempt += 1
                continue
            self._add(Contact(link, dialled=True))

    async def _accepted(self, link: ControlLink) -> None:
        self._add(Contact(link, dialled=False))

    def _add(self, contact: Contact) -> None:
        """Keep one link a pair: the one that the lower device id dialled wins."""
        device_id = text_id(contact.link.peer_id)
        standing = self.contacts.get(device_id)
        lower_dials = (self._identity.text_id < device_id) == contact.dialled
        if standing and not lower_dials:
            contact.link.close()
            return
        if standing:
            standing.link.close()
            if monotonic() - standing.since > SHORT_S:  # no crossing of two dials: that node was started anew
                self._spawn(self._on_down(device_id, LinkLost("It linked anew.")))
        self.contacts[device_id] = contact
        self._spawn(self._listen(device_id, contact))

    async def _listen(self, device_id: str, contact: Contact) -> None:
        problem = LinkLost("The control link ended.")
        try:
            if contact.link.epochs_differ:
                await self._send_roster(contact)
            await contact.link.send(*to_frame(Ping(sent=monotonic())))
            while True:
                kind, body = await contact.link.recv()
                contact.heard_at = monotonic()
                await self._handle(device_id, contact, kind, body)
        except LinkError as error:
            problem = LinkLost(error.what)
        except MaclusterError as error:
            self._journal.error(f"The link to {device_id[:8]} is closed: {error.what}")
        finally:  # whatever it was: a link that nobody reads must not stay
            await self._ended(device_id, contact, problem.what)

    async def _ended(self, device_id: str, contact: Contact, what: str) -> None:
        contact.link.close()
        if self.contacts.get(device_id) is contact:
            del self.contacts[device_id]
            short = monotonic() - contact.since < SHORT_S
            self._short[device_id] = self._short.get(device_id, 0) + 1 if short else 0
            self._on_change(device_id)
            await self._on_down(device_id, LinkLost(contact.goodbye or what))
            self.reach(device_id)

    async def _handle(self, device_id: str, contact: Contact, kind: FrameType, body: bytes) -> None:
        if kind == FrameType.ROSTER:
            if self._store.adopt(body):
                await self.roster_changed()
            elif contact.link.epochs_differ:
                await self._send_roster(contact)
            self._on_change(device_id)
            return
        message = from_frame(kind, body)
        match message:
            case Ping(sent=sent):
                await contact.link.send(*to_frame(Pong(sent=sent, status=self._status())))
            case Pong(sent=sent, status=status):
                contact.timed(monotonic() - sent)
                contact.status = status
                self._on_change(device_id)
            case Bye(reason=reason):
                contact.goodbye = reason
            case _:
                await self._on_message(device_id, message)

    async def _beat(self) -> None:
        """Ping every link; close those that are silent. A late loop of our own (sleep, a busy machine) restarts the
        clocks instead of blaming the others.
        """
        due = monotonic()
        while True:
            await asyncio.sleep(BEAT_S)
            late, due = monotonic() - due - BEAT_S > 1.0, monotonic()
            for device_id, contact in list(self.contacts.items()):
                if late:
                    contact.heard_at = due
                silence = due - contact.heard_at
                if silence > DEAD_S:
                    contact.goodbye = f"No sign of life for {silence:.1f} s."
                    self._spawn(self._ended(device_id, contact, ""))  # TLS would wait a second for its goodbye
                    continue
                if (silence > SUSPECT_S) != contact.suspect:
                    contact.suspect = not contact.suspect
                    self._on_change(device_id)
                # one Mac that does not read must not hold up the others
                if contact.beat is None or contact.beat.done():
                    contact.beat = self._spawn(self._ping(contact, due))

    async def _ping(self, contact: Contact, now: float) -> None:
        await self._send_raw(contact, *to_frame(Ping(sent=now)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
