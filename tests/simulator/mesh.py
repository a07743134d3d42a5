"""A node's control links, dialled again while two Macs are not linked, and watched by the real `Liveness`."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from core.errors import LinkLost, MaclusterError, RosterFork
from core.link.liveness import Dead, Liveness, Slept
from core.node.base.message_table import MessageRow, MessageTable
from core.node.base.node_message import NodeMessage
from core.node.base.signals import Signals
from core.node.peers.linked_mac import LinkedMacChanged, StageHeard
from core.node.peers.mesh import LinkEnded, RosterArrived
from core.node.peers.messages import Greeting, Ping, Status
from core.node.peers.own_mac import OwnMac
from core.node.ring.messages import LinkUp, PrepareStage, StageReport
from core.trust.identity import parse_text_id
from core.trust.levels import carries_prompts
from core.trust.roster.store import RosterStore
from tests.simulator.loop import Process
from tests.simulator.network import Network, Way, Wire

REDIAL_S = (0.2, 0.5, 1.0, 2.0)
LOST_SHARE = 0.2  # of orders and reports of plans, where some are lost


class Contact:
    """One end of a control link."""

    def __init__(self, own: Mesh, device_id: str) -> None:
        self.own, self.device_id = own, device_id
        self.other: Contact | None = None
        self.wire: Wire | None = None
        self.inbox: deque[object] = deque()
        self.is_read = False
        self.is_over = False
        self.since = own.network.loop.now
        self.status: Status | None = None
        self.rtts: dict[str, float] = {}
        self.greeting: Greeting | None = None
        self.rtt_s = 0.001
        self.goodbye = ""
        self.link = SimpleNamespace(remote_host=device_id, local_host=own.device_id)


class Mesh:
    """A node's control links, as `core.node.peers.mesh.Mesh` keeps them, without keys and sockets."""

    def __init__(
        self,
        device_id: str,
        process: Process,
        network: Network,
        store: RosterStore,
        own: OwnMac,
        signals: Signals,
        messages: MessageTable,
    ) -> None:
        self._messages = messages
        self.device_id, self.process, self.network, self._store = device_id, process, network, store
        self._own, self._signals = own, signals
        self.address = device_id
        self._liveness = Liveness()
        self._tries: dict[str, int] = {}
        self._reaching: set[str] = set()
        self._dialled: dict[str, Contact] = {}
        self.contacts: dict[str, Contact] = {}
        self.dialling = SimpleNamespace(problem=lambda _: "", is_apart=lambda _: False)
        self.greeting = Greeting()
        network.meshes[device_id] = self
        self._beat_at: Any = None

    def messages(self) -> tuple[MessageRow, ...]:
        """No rows: a simulated mesh handles beats itself."""
        return ()

    def why_apart(self, device_id: str) -> None:
        """Nothing: all simulated Macs have one version."""

    def start(self) -> None:
        """Dial all other Macs; they dial too when they find this Mac gone."""
        self._tick()
        for other in self.network.meshes:
            self._reach(other, 0.0)

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        """Send a message; returns whether it went out."""
        contact, dice = self.contacts.get(device_id), self.network.forgets
        if dice and isinstance(message, PrepareStage | LinkUp | StageReport) and dice.random() < LOST_SHARE:
            return contact is not None
        return contact is not None and self._put(contact, message)

    def local_host_of(self, device_id: str) -> str:
        """The address of this Mac."""
        return self.device_id

    def is_suspect(self, device_id: str) -> bool:
        """Whether that Mac has been silent for too long."""
        return self._liveness.is_suspect(device_id)

    async def roster_changed(self) -> None:
        """Send the new roster to all linked Macs, and end the links to Macs no longer trusted."""
        for device_id, contact in list(self.contacts.items()):
            self._put(contact, self._store.bundle())
            if not self._may_link(device_id):
                self._end(contact, "The two are no longer paired.")
        for other in self.network.meshes:
            self._reach(other, 0.0)

    def tell(self, device_id: str, word: object) -> None:
        """Send any message, as a hostile or mistaken Mac."""
        if contact := self.contacts.get(device_id):
            self._put(contact, word)

    def _put(self, contact: Contact, word: object) -> bool:
        other = contact.other
        if contact.is_over or self.process.is_dead or contact.wire is None or other is None:
            return False
        contact.wire.send(other.own._arrived, other, word)
        return True

    def _may_link(self, device_id: str) -> bool:
        roster = self._store.cluster().roster
        peer, me = roster.member(parse_text_id(device_id)), roster.member(parse_text_id(self.device_id))
        return peer is not None and me is not None and carries_prompts(peer.level)

    def _reach(self, device_id: str, after: float) -> None:
        if device_id not in (self.device_id, *self._reaching):
            self._reaching.add(device_id)
            self.process.soon(self._dial, device_id, after=after + 0.1 * (device_id < self.device_id))

    def _dial(self, device_id: str) -> None:
        """Dial once; dial again a while later until a link stands."""
        self._reaching.discard(device_id)
        if device_id in self.contacts or not self._may_link(device_id):
            return
        other = self.network.meshes[device_id]
        self._tries[device_id] = tries = self._tries.get(device_id, 0) + 1
        self._reach(device_id, REDIAL_S[min(tries, len(REDIAL_S)) - 1])
        if other.process.is_dead:
            return
        own = self._dialled[device_id] = Contact(self, device_id)
        own.wire = Wire(self.network, Way((self.device_id, device_id)), other.process)
        own.wire.send(other._knocked, own)

    def _knocked(self, theirs: Contact) -> None:
        device_id = theirs.own.device_id
        standing = self.contacts.get(device_id)
        if theirs.own.process.is_dead or not self._may_link(device_id):
            return
        dialled = self._dialled.get(device_id)
        is_ours = dialled and self.device_id < device_id and self.network.loop.now < dialled.since + 0.5
        if is_ours or (standing and standing.since > theirs.since):
            return  # both dialled at once
        if standing:
            self._end(standing, "It connected again.")
        own = Contact(self, device_id)
        own.wire = Wire(self.network, Way((self.device_id, device_id)), theirs.own.process)
        own.other, theirs.other = theirs, own
        own.wire.send(theirs.own._welcomed, theirs)
        self._add(own)

    def _welcomed(self, own: Contact) -> None:
        standing = self.contacts.get(own.device_id)
        if self._dialled.get(own.device_id) is not own or (standing and not standing.is_over):
            self._close(own)
            return
        self._add(own)

    def _add(self, contact: Contact) -> None:
        device_id = contact.device_id
        self._dialled.pop(device_id, None)
        self.contacts[device_id] = contact
        self._tries[device_id] = 0
        self._liveness.add(device_id, self.network.loop.now)
        self._plan_beat()
        if contact.other and contact.other.own._store.current is not self._store.current:
            self._put(contact, self._store.bundle())
        rtts = dict.fromkeys(self.contacts, contact.rtt_s)
        self._put(contact, Ping(sent=0.0, status=self._own.status(), rtts=rtts, stage=self._own.stage_of(device_id)))
        self._read(contact)

    def _arrived(self, contact: Contact, word: object) -> None:
        """Handle a message of another Mac; it waits until its link is welcomed here."""
        contact.inbox.append(word)
        if self.contacts.get(contact.device_id) is contact:
            self._liveness.note_sign(contact.device_id, self.network.loop.now)
            self._read(contact)

    def _read(self, contact: Contact) -> None:
        while contact.inbox and contact.inbox[0] is None:
            contact.inbox.popleft()  # a beat
        if contact.inbox and not contact.is_read:
            contact.is_read = True
            self.process.spawn(self._listen, contact)

    async def _listen(self, contact: Contact) -> None:
        """Handle one message after the other."""
        try:
            while contact.inbox and self.contacts.get(contact.device_id) is contact:
                await self._handle(contact, contact.inbox.popleft())
        except MaclusterError as error:
            self._end(contact, error.what)
        finally:
            contact.is_read = False

    async def _handle(self, contact: Contact, word: Any) -> None:
        match word:
            case None:
                return
            case bytes():
                await self._adopt(contact, word)
            case Ping(status=status, rtts=rtts, stage=stage):
                if status:
                    contact.status, contact.rtts = status, rtts
                    self._changed(contact.device_id)
                if stage:
                    self._signals.emit(StageHeard(contact.device_id, stage))
            case EOFError():
                self._end(contact, "The control link ended.")
            case _:
                await self._messages.handle(contact.device_id, word)

    async def _adopt(self, contact: Contact, bundle: bytes) -> None:
        try:
            if self._store.adopt(bundle):
                await self._signals.deliver(RosterArrived())
        except RosterFork:
            await self._signals.deliver(RosterArrived())
        self._changed(contact.device_id)

    def _changed(self, device_id: str) -> None:
        self._signals.emit(LinkedMacChanged(device_id))

    def _close(self, contact: Contact) -> None:
        other = contact.other
        if not contact.is_over:
            if contact.wire and other and not self.process.is_dead:
                contact.wire.send(other.own._arrived, other, EOFError())
            contact.is_over = True

    def _end(self, contact: Contact, what: str) -> None:
        self._close(contact)
        if self.contacts.get(contact.device_id) is contact:
            del self.contacts[contact.device_id]
            self._liveness.remove(contact.device_id)
            self._changed(contact.device_id)
            self.process.spawn(self._signals.deliver, LinkEnded(contact.device_id, LinkLost(what)))
            self._reach(contact.device_id, REDIAL_S[0])

    def hang_up(self) -> None:
        """End the links: the process is gone, and its Mac informs the others."""
        for contact in self.contacts.values():
            if contact.wire and contact.other:
                contact.wire.send(contact.other.own._arrived, contact.other, EOFError())

    def _plan_beat(self) -> None:
        if self._beat_at is None or self._beat_at.when() > self._liveness.due:
            if self._beat_at is not None:
                self._beat_at.cancel()
            self._beat_at = self.process.soon(self._tick, after=self._liveness.due - self.network.loop.now)

    def _tick(self) -> None:
        self._beat_at = None
        for change in self._liveness.tick(self.network.loop.now):
            if isinstance(change, Dead):
                self._end(self.contacts[change.device_id], f"No sign of life for {change.silence_s:.1f} s.")
            elif not isinstance(change, Slept):
                self._changed(change.device_id)
        for device_id in self._liveness.watched:
            contact = self.contacts[device_id]
            stage = self._own.stage_of(device_id)
            self._put(contact, Ping(sent=0.0, stage=stage) if stage else None)
        self._plan_beat()

    def reset(self, contact: Contact) -> None:
        """Break the connection; both ends see it."""
        self._end(contact, "The control link ended.")
