"""The stages before and after this one, and the links to them, with new keys when due."""

from __future__ import annotations

import hashlib
import socket
from contextlib import ExitStack, closing
from typing import Final

from core.link.data_plane import Alarm, DataLink, Receiver, Sender, accept, dial
from core.link.network_paths import connect
from core.trust.identity import Identity, parse_text_id
from core.trust.roster.bundle import Cluster
from core.worker.messages import Connect

DIAL_S: Final = 10.0


def plan_digest(sent: bytes) -> bytes:
    """SHA-256 over a plan as its head sent it, which both ends of a data link compare before it is ready."""
    return hashlib.sha256(b"macluster/1 plan\0" + sent).digest()


class Neighbours:
    """The neighbours of stage `index` as `told` describes them. Every link is bound to that plan and that roster.
    `row_bytes`: most bytes of an incoming position; `way`: the path that the link to the next stage uses; `host`: this
    stage's listen address; `own_hosts`: its addresses on the links to the next stage and from the one before.
    """

    def __init__(
        self, told: Connect, index: int, listener: socket.socket, identity: Identity, *, row_bytes: int
    ) -> None:
        self.plan = plan = told.plan
        self.index = index
        self._listener, self._ways, self._next_port = listener, told.ways, told.next_port
        self.way = self._ways[0]
        self._identity, self._cluster = identity, Cluster.decode(told.cluster)
        self._row_bytes = row_bytes
        self._before = parse_text_id(plan.stages[index - 1].device_id)
        self._after = parse_text_id(plan.stages[(index + 1) % len(plan.stages)].device_id)
        self.binding = told.digest
        self.host = str(listener.getsockname()[0])
        self.own_hosts = (self.host, self.host)

    def link(self, alarm: Alarm | None = None) -> tuple[Sender, Receiver]:
        """Two new links, to the next stage and from the one before. The head dials first and all others accept first,
        so the links close one by one round the ring and no two stages wait for each other. Raises LinkError or its
        kinds, also what `alarm` raises; no link stays open then.
        """
        with ExitStack() as failing:
            if self.index == 0:
                sender = failing.enter_context(closing(self._dial()))
                receiver = self._accept(alarm)
            else:
                receiver = failing.enter_context(closing(self._accept(alarm)))
                sender = self._dial()
            failing.pop_all()
        receiver.row_bytes = self._row_bytes
        return sender, receiver

    def dial(self, port: int, binding: bytes) -> DataLink:
        """A link to the next stage, which listens at `port`. Raises LinkError or its kinds."""
        plain, self.way = connect(self._ways, port, DIAL_S)
        self._ways = (self.way,)  # new keys keep the way; only a new plan_gen from the head changes it
        return dial(
            self.way.host,
            port,
            identity=self._identity,
            cluster=self._cluster,
            peer_id=self._after,
            binding=binding,
            timeout_s=DIAL_S,
            plain=plain,
        )

    def accept(self, listener: socket.socket, binding: bytes, alarm: Alarm | None = None) -> DataLink:
        """The link that the stage before dials. Raises LinkError or its kinds, also what `alarm` raises."""
        return accept(
            listener,
            identity=self._identity,
            cluster=self._cluster,
            peer_id=self._before,
            binding=binding,
            timeout_s=DIAL_S,
            alarm=alarm,
        )

    def _dial(self) -> Sender:
        link = self.dial(self._next_port, self.binding)
        self.own_hosts = (str(link.sock.getsockname()[0]), self.own_hosts[1])
        return link.sender()

    def _accept(self, alarm: Alarm | None) -> Receiver:
        link = self.accept(self._listener, self.binding, alarm)
        self.own_hosts = (self.own_hosts[0], str(link.sock.getsockname()[0]))
        return link.receiver()
