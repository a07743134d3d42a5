"""Control links to every paired Mac: which ones are linked, their round trip, and messages to and from them.

Handlers of messages, ends of links and new rosters are awaited before the next event of the same link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from core.errors import LinkError, LinkLost, MaclusterError, NotUnderstood, OtherRoster, Problem, RosterFork
from core.link.connection_admission import MAX_CONTROL_LINKS
from core.link.control_link import GOODBYE_S, ControlLink, ControlServer, serve_control
from core.link.frames import FrameType
from core.link.liveness import BEAT_S, Dead, Liveness, LivenessChange, Slept, Suspected, Well
from core.link.rekeyed_link import RekeyedLink
from core.link.session import Kind
from core.node.base.context import NodeContext
from core.node.base.message_table import MessageRow, receives
from core.node.base.node_message import BEATS, NodeMessage, to_frame
from core.node.base.signals import AwaitedSignal, Signal
from core.node.peers.addresses import AddressBook
from core.node.peers.dialling import Dialling
from core.node.peers.linked_mac import LinkedMac, LinkedMacChanged, StageHeard
from core.node.peers.messages import Bye, Greeting, Leads, NotKnown, Ping, Status
from core.node.peers.networks import NetworksChanged
from core.node.peers.own_mac import OwnMac
from core.node.peers.path_rate import answer_burst
from core.node.peers.versions import own_greeting, why_apart, wire_between
from core.rates import Rate
from core.trust.identity import text_id
from core.trust.levels import carries_prompts

SHORT_S = 5.0
RESUME_S = 5.0
REST_S = 5.0  # after the last message and the last step a Mac rests
SOON_S = BEAT_S / 5  # between two beats if there is news
NEAR: Final = 0.25  # of a round trip, and
NEAR_S: Final = 0.0002  # seconds: smaller changes are not told
# what Macs say to each other that have no version of messages in common
LASTING: Final = frozenset({FrameType.GREETING, FrameType.PING, FrameType.ROSTER, FrameType.BYE})
ANSWERED: Final = frozenset({FrameType.PLAN, FrameType.KEY_CHANGE})  # their senders wait, so they are refused
MAX_TOLD: Final = 256


class MacGone(Signal, frozen=True):
    """A Mac is no longer linked: forget requests to and from it. Emitted before the ring handles LinkEnded."""

    device_id: str


class LinkEnded(AwaitedSignal, frozen=True):
    """The control link of a Mac ended."""

    device_id: str
    error: LinkLost


class MessageRefused(Signal, frozen=True):
    """A Mac does not understand what this one sent in frames of that type."""

    device_id: str
    frame: int
    problem: Problem


class MacLeft(AwaitedSignal, frozen=True):
    """A linked Mac stops on purpose; its link ends soon."""

    device_id: str


class RosterArrived(AwaitedSignal, frozen=True):
    """Another Mac's roster was adopted here, or it forked."""


class Mesh:
    """One link per reachable paired Mac, whichever side dialled. `address`: where others reach this Mac, or ""."""

    def __init__(self, node: NodeContext, book: AddressBook, own: OwnMac) -> None:
        self._identity, self._store, self._own = node.identity, node.store, own
        self._signals, self._journal, self._tasks, self._bus = node.signals, node.journal, node.tasks, node.bus
        self._messages, self._key_limits = node.messages, node.config.key_limits
        self.address, self.port = "", 0
        self.greeting, self.ignored = own_greeting(), 0
        self._told: set[tuple[str, str]] = set()  # Macs, and messages of theirs that are ignored
        self._running: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.Task[None]] = set()
        self._server: ControlServer | None = None
        self._is_over = False
        self._liveness, self._stirred = Liveness(), asyncio.Event()
        self._rests, self._active_at, self._step = False, monotonic(), 0
        self._rtts: dict[str, float] = {}  # to the linked Macs, as sent to the others
        self.contacts: dict[str, LinkedMac] = {}
        self.dialling = Dialling(node, book, is_linked=self.contacts.__contains__, on_link=self._reached)
        node.signals.on(NetworksChanged, self._networks_changed)
        node.bus.on_work(self.stir)

    async def start(self, host: str, port: int) -> int:
        self._server = await serve_control(
            host, port, identity=self._identity, cluster=self._store.cluster, on_link=self._accepted
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.address = f"{host}:{self.port}"
        self._hold(self._tasks.essential("The listener for links", self._server.serve_forever))
        self._hold(self._tasks.essential("The watch over links", self._beat))
        self.dialling.roster_changed()
        return self.port

    async def stop(self, reason: str) -> None:
        """Say goodbye, close every link and wait for its end, at most a second if the other side does not respond."""
        for device_id in list(self.contacts):
            await self.send(device_id, Bye(reason=reason))
        self._is_over = True  # no link is kept from here on
        if self._server:
            self._server.close()
        contacts = list(self.contacts.values())
        self.contacts.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.dialling.stop()
        for contact in contacts:
            contact.rekeyed.close()
        if self._server:
            await self._server.wait_closed()
        if self._open:
            await asyncio.wait(self._open, timeout=2 * GOODBYE_S)

    @property
    def admissions(self) -> dict[str, int]:
        return {str(outcome): count for outcome, count in self._server.admission.counts.items()} if self._server else {}

    async def roster_changed(self) -> None:
        """Push the new roster to linked Macs, end links to Macs no longer trusted, and dial missing members."""
        for device_id, contact in list(self.contacts.items()):
            await self._send_roster(contact)
            if not self._may_link(contact):
                contact.goodbye = "The two are no longer paired."
                self._spawn("The end of a link", self._ended(device_id, contact, ""))
        self.dialling.roster_changed()

    def _networks_changed(self, changed: NetworksChanged) -> None:
        """End links over addresses that are gone at once; others stay, even if there is a better path now."""
        for device_id, contact in list(self.contacts.items()):
            if contact.link.local_host in changed.gone:
                self._spawn("The end of a link", self._ended(device_id, contact, "The path to it is gone."))

    def is_suspect(self, device_id: str) -> bool:
        return self._liveness.is_suspect(device_id)

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        """Send a message; False if that Mac is not linked (LinkEnded reports that), or has too different a version."""
        contact = self.contacts.get(device_id)
        if contact is None or (contact.is_apart and message.FRAME not in LASTING):
            return False
        self._active_at = monotonic()
        if self._rests:
            self.stir()
        return await self._send_raw(contact, *to_frame(message))

    def stir(self) -> None:
        """Beat soon: this Mac begins to do something, or what it tells of itself changed."""
        self._stirred.set()

    def why_apart(self, device_id: str) -> Problem | None:
        """Why a linked Mac can't hold layers of this Mac's plans; None if it can."""
        if (contact := self.contacts.get(device_id)) and contact.greeting:
            return why_apart(contact.link.peer_name, contact.greeting, self.greeting, can_talk=not contact.is_apart)
        return None

    def leaders(self) -> dict[str, Leads]:
        reported = {device_id: mac.status for device_id, mac in self.contacts.items() if not mac.is_apart}
        return {device_id: status.leads for device_id, status in reported.items() if status and status.leads}

    def local_host_of(self, device_id: str) -> str:
        contact = self.contacts.get(device_id)
        return contact.link.local_host if contact else ""

    async def _send_roster(self, contact: LinkedMac) -> None:
        shared = self._store.shared_epoch(contact.link.peer_points)
        await self._send_raw(contact, FrameType.ROSTER, self._store.bundle(shared))

    async def _send_raw(self, contact: LinkedMac, kind: FrameType, body: bytes) -> bool:
        try:
            await contact.link.send(kind, body)
        except LinkError:
            contact.link.close()
            return False
        return True

    async def _accepted(self, link: ControlLink) -> None:
        if link.kind is Kind.PATH:
            await answer_burst(link)
        else:
            self._add(self._rekeyed(link, dialled=False))

    def _reached(self, link: ControlLink) -> None:
        self._add(self._rekeyed(link, dialled=True))

    def _rekeyed(self, link: ControlLink, *, dialled: bool) -> RekeyedLink:
        task = self._tasks.spawn("The end of a link", link.wait_closed())
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return RekeyedLink(link, dialled=dialled)

    def _add(self, rekeyed: RekeyedLink) -> None:
        """Keep one link per pair. If two dials crossed, the lower device id's wins. A later link waits for the end of
        the present one: after RESUME it is a new key, else that node was restarted.
        """
        device_id, contact = text_id(rekeyed.link.peer_id), LinkedMac(rekeyed)
        known = self.contacts.get(device_id)
        full = not known and len(self.contacts) >= MAX_CONTROL_LINKS
        if full or self._is_over or not self._may_link(contact):
            rekeyed.close()
            return
        if known:
            if known.rekeyed.dialled == rekeyed.dialled or contact.since - known.since > SHORT_S:
                known.rekeyed.set_aside(rekeyed)
                known.changed_at = contact.since
                return
            if (self._identity.text_id < device_id) != rekeyed.dialled:
                rekeyed.close()
                return
            known.rekeyed.close()
        self.contacts[device_id] = contact
        self._liveness.add(device_id, contact.since)
        self.stir()
        self.dialling.linked(device_id)
        self._spawn("The reader of a link", self._listen(device_id, contact))

    def _renewed(self, link: ControlLink) -> None:
        """Take a link dialled because the present one's keys are worn."""
        contact, rekeyed = self.contacts.get(text_id(link.peer_id)), self._rekeyed(link, dialled=True)
        if contact and contact.rekeyed.dialled and not contact.rekeyed.is_renewing:
            with suppress(LinkError):  # the old link ended just now; then this one follows it
                contact.rekeyed.renew(link)
                contact.changed_at = monotonic()
                contact.back_off.reset()
                return
        self._add(rekeyed)

    def _may_link(self, contact: LinkedMac) -> bool:
        """Check by the newest roster, which may have arrived during the handshake, and by every undecided rival."""
        roster, peer_id = self._store.cluster().roster, contact.link.peer_id
        peer, me = roster.member(peer_id), roster.member(self._identity.device_id)
        is_member = peer is not None and me is not None and carries_prompts(peer.level)
        return is_member and not self._store.is_revoked(peer_id)

    def _is_behind(self, contact: LinkedMac) -> bool:
        """Whether the other end has not confirmed our roster, or our copy of it was not announced."""
        stand = self._store.cluster().roster.stand
        return contact.link.peer_stand != stand or contact.link.stand != stand

    async def _listen(self, device_id: str, contact: LinkedMac) -> None:
        problem = LinkLost("The control link ended.")
        try:
            await contact.link.send(*to_frame(self.greeting))
            if self._is_behind(contact):
                await self._send_roster(contact)
            await contact.link.send(*to_frame(self._ping_to(contact, self._own.status())))
            while True:
                kind, body = await contact.rekeyed.recv()
                self._liveness.note_sign(device_id, monotonic())
                await self._handle(device_id, contact, kind, body)
                if wait_s := contact.spend(kind, self._rate(kind), monotonic()):
                    await asyncio.sleep(wait_s)
        except LinkError as error:
            problem = LinkLost(error.what)
        except MaclusterError as error:
            self._journal.error(f"The link to {device_id[:8]} is closed: {error.what}")
        finally:  # a link without a reader must not stay
            await self._ended(device_id, contact, problem.what)

    async def _ended(self, device_id: str, contact: LinkedMac, what: str) -> None:
        is_current = self.contacts.get(device_id) is contact
        aside = contact.rekeyed.take_aside() if is_current else None
        contact.rekeyed.close()
        if is_current:
            del self.contacts[device_id]
            self._liveness.remove(device_id)
            if aside:
                what = "It connected again."
                self._add(aside)
            elif contact.greeting is None:  # as a Mac of before the greeting does
                what = f"{what} It told no version: if this goes on, update macluster on both Macs."
            self._changed(device_id)
            try:
                await self._signals.deliver(LinkEnded(device_id, LinkLost(contact.goodbye or what)))
            finally:
                self.dialling.ended(device_id, at_once=monotonic() - contact.since < SHORT_S)

    async def _handle(self, device_id: str, contact: LinkedMac, kind: FrameType, body: bytes) -> None:
        if kind == FrameType.ROSTER:
            await self._handle_roster(device_id, contact, body)
        elif not contact.is_apart or kind in LASTING:
            try:
                message = self._messages.decode(kind, body)
            except NotUnderstood as error:
                await self._ignore(device_id, contact, kind, error)
            else:
                await self._messages.handle(device_id, message)

    async def _ignore(self, device_id: str, contact: LinkedMac, kind: FrameType, error: NotUnderstood) -> None:
        self.ignored += 1
        if (device_id, error.message) not in self._told and len(self._told) < MAX_TOLD:
            self._told.add((device_id, error.message))
            self._journal.warn(f"{contact.link.peer_name} sent what is ignored here: {error.what}")
        if kind in ANSWERED:
            await self._send_raw(contact, *to_frame(NotKnown(frame=kind, what=error.what)))

    def messages(self) -> tuple[MessageRow, ...]:
        return (
            receives(Greeting, self._greeted),
            receives(Ping, self._pinged),
            receives(Bye, self._left),
            receives(NotKnown, self._refused),
        )

    def _greeted(self, device_id: str, greeting: Greeting) -> None:
        if contact := self.contacts.get(device_id):
            contact.greeting, contact.is_apart = greeting, wire_between(greeting, self.greeting) is None
            self._say_apart(device_id)
            self._changed(device_id)

    def _say_apart(self, device_id: str) -> None:
        if problem := self.why_apart(device_id):
            self._journal.warn(f"{problem.what} {problem.fix}")

    def _refused(self, device_id: str, refusal: NotKnown) -> None:
        problem = Problem(kind="NotUnderstood", what=refusal.what, fix="Run the same version of macluster on both.")
        self._signals.emit(MessageRefused(device_id, refusal.frame, problem))

    def _rate(self, kind: FrameType) -> Rate:
        return BEATS if kind == FrameType.ROSTER else self._messages.rate(kind)

    def _pinged(self, device_id: str, ping: Ping) -> None:
        if contact := self.contacts.get(device_id):
            is_urgent = contact.rtt_s is None or (contact.rests and not ping.rests)
            if contact.pinged(ping, monotonic()):
                self._changed(device_id)
            if ping.stage:
                self._signals.emit(StageHeard(device_id, ping.stage))
            if is_urgent:
                self.stir()

    async def _left(self, device_id: str, bye: Bye) -> None:
        if contact := self.contacts.get(device_id):
            contact.goodbye = bye.reason
            await self._signals.deliver(MacLeft(device_id))

    async def _handle_roster(self, device_id: str, contact: LinkedMac, body: bytes) -> None:
        try:
            if self._store.adopt(body):
                await self._signals.deliver(RosterArrived())
            elif self._is_behind(contact):
                await self._send_roster(contact)
        except OtherRoster:
            if not contact.is_apart:  # told once; the link stays for what all versions know
                contact.is_apart = True
                self._say_apart(device_id)
        except RosterFork as error:
            if contact.dispute != error.what:  # logged once; the link stays to carry the user's decision
                contact.dispute = error.what
                self._journal.error(f"{contact.link.peer_name} ({device_id[:8]}): {error.what}")
                await self._signals.deliver(RosterArrived())
        self._changed(device_id)

    async def _beat(self) -> None:
        while True:
            now, status = monotonic(), self._own.status()
            self._look(now, status.step)
            for change in self._liveness.tick(now):
                self._judged(change, now)
            for device_id in self._liveness.watched:
                contact = self.contacts[device_id]
                self._renew(device_id, contact, now)
                # a Mac that does not read must not delay the others
                if contact.beat is None or contact.beat.done():
                    contact.beat = self._spawn("A ping", self._ping(contact, status))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._liveness.due - monotonic()):
                    await self._stirred.wait()
                    await asyncio.sleep(now + SOON_S - monotonic())
            self._stirred.clear()

    def _look(self, now: float, step: int) -> None:
        """Note whether anything runs here and on the other Macs, and the round trips that changed."""
        if step != self._step or self._bus.now.is_working:
            self._step, self._active_at = step, now
        self._rests = now > self._active_at + REST_S
        for device_id, contact in self.contacts.items():
            self._liveness.pace(device_id, now, rests=self._rests and contact.rests)
        measured = {device_id: c.rtt_s for device_id, c in self.contacts.items() if c.rtt_s is not None}
        self._rtts = {
            mac: known if (known := self._rtts.get(mac)) and abs(rtt_s - known) <= max(NEAR * known, NEAR_S) else rtt_s
            for mac, rtt_s in measured.items()
        }

    def _judged(self, change: LivenessChange, now: float) -> None:
        match change:
            case Slept(late_s=late_s):
                self._journal.info(f"This Mac did not run for {late_s:.1f} s: silence in that time does not count.")
                for contact in self.contacts.values():
                    contact.changed_at = now
            case Dead(device_id=device_id, silence_s=silence_s):
                what = f"No sign of life for {silence_s:.1f} s."
                # in the background: TLS waits for the other end's goodbye
                self._spawn("The end of a link", self._ended(device_id, self.contacts[device_id], what))
            case Suspected(device_id=device_id) | Well(device_id=device_id):
                self._changed(device_id)

    def _renew(self, device_id: str, contact: LinkedMac, now: float) -> None:
        """Renew worn keys; end the link of a Mac that does not complete that in time."""
        rekeyed, is_late = contact.rekeyed, now - contact.changed_at > RESUME_S
        if rekeyed.is_renewing:
            if is_late:
                self._spawn("The end of a link", self._ended(device_id, contact, "It did not switch to new keys."))
            return
        if is_late:
            rekeyed.drop_aside()
        if rekeyed.dialled and rekeyed.link.needs_new_keys(self._key_limits) and now >= contact.renew_at:
            contact.renew_at = now + contact.back_off.failed()
            self.dialling.renew(device_id, self._renewed)

    def _changed(self, device_id: str) -> None:
        self._signals.emit(LinkedMacChanged(device_id))

    async def _ping(self, contact: LinkedMac, status: Status) -> None:
        """Send a ping, or the roster while the rosters differ, since nothing else may be sent then."""
        if self._is_behind(contact):
            await self._send_roster(contact)
        else:
            await self._send_raw(contact, *to_frame(self._ping_to(contact, status)))

    def _ping_to(self, contact: LinkedMac, status: Status) -> Ping:
        stage = self._own.stage_of(text_id(contact.link.peer_id))
        return contact.ping(monotonic(), status, self._rtts, stage, rests=self._rests, logged=self._journal.written)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._hold(self._tasks.spawn(name, work))

    def _hold(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Cancel this task with the links, before the node's other tasks."""
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
