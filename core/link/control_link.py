"""Control links between nodes: one TLS connection in both directions, asyncio, sealed like the data plane.

Until both Macs have the same roster they may exchange only rosters and greetings: `send` holds other frames back,
`recv` refuses them. Each end's position is in its HELLO and at the start of every roster bundle.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Final

from core.errors import LinkLost, MaclusterError, PortTaken, ProtocolError
from core.link.accept_loop import accept_connections, readable
from core.link.connection_admission import ConnectionAdmission, HandshakeProgress
from core.link.control_handshake import HandshakeResult, acceptor_handshake, dialler_handshake
from core.link.data_link import KeyMeter
from core.link.frames import HEADER, TAG_BYTES, FrameHeader, FrameType
from core.link.listener import caller_address, open_listener
from core.link.rekey_limits import KeyUse
from core.link.session import HELLO_TIMEOUT_S, Kind
from core.link.tls import TLS_TIMEOUT_S, check_peer, client_context, link_error, server_context
from core.link.tls_stream import TlsStream, connect_arguments, open_tls_stream
from core.mac.port_holder import port_holder
from core.settings import MAX_CONTROL_BODY
from core.trust.identity import Identity
from core.trust.roster.bundle import Cluster, decode_bundle
from core.trust.roster.format import Member

BACKLOG: Final = 16
HANDSHAKES: Final = 8
SILENT_S: Final = 0.05
GRACE_S: Final = 0.25
PEER_LINKS: Final = 4
HELD_FRAMES: Final = 64
GOODBYE_S: Final = 1.0


class ControlLink:
    """A sealed link to another node. Any task may call `send`, one may call `recv`; both can be cancelled.

    `stand` and `peer_stand` are the roster (epoch and hash) of each end, as last exchanged; `peer_points` are rosters
    that the peer has.
    """

    def __init__(self, wire: TlsStream, agreed: HandshakeResult) -> None:
        self.kind = agreed.kind
        self._wire, self._sealer, self._opener = wire, agreed.sealer, agreed.opener
        self._sent, self._received = KeyMeter(agreed.sealer), KeyMeter(agreed.opener)
        self._due: FrameHeader | None = None
        self._held: list[tuple[FrameType, bytes]] = []
        self.peer_id, self.peer_name = agreed.peer.device_id, agreed.peer.name
        self.remote_host, self.local_host = wire.remote_host, wire.local_host
        self.stand, self.peer_stand = agreed.stands
        self.peer_points = [self.peer_stand]
        self._told, self._heard = {self.stand}, {self.peer_stand}
        self._is_open = not self.epochs_differ

    @property
    def epochs_differ(self) -> bool:
        return self.stand != self.peer_stand

    @property
    def is_closed(self) -> bool:
        return self._wire.is_closed

    async def send(self, kind: FrameType, body: bytes) -> None:
        """Seal and send a frame. The body of a ROSTER frame is a bundle; other frames wait until the rosters match
        once.

        Raises ProtocolError for a body over 64 KiB or too many waiting frames, RosterError for an invalid bundle.
        LinkLost, LinkTimeout and SealError end the link.
        """
        if len(body) > MAX_CONTROL_BODY:
            raise ProtocolError(f"A control message of {len(body)} bytes is beyond {MAX_CONTROL_BODY}.")
        if kind is FrameType.ROSTER:
            stand = decode_bundle(body).stand
            self._put(kind, body)
            self.stand = stand
            self._told.add(stand)
            self._open_if(not self._told.isdisjoint(self._heard))
        elif self._is_open or kind is FrameType.GREETING:
            self._put(kind, body)
        elif len(self._held) < HELD_FRAMES:
            self._held.append((kind, body))
        else:
            raise ProtocolError(f"{self.peer_name} has another roster and does not take this one.")
        await self._wire.drain()

    async def recv(self) -> tuple[FrameType, bytes]:
        """Receive the next frame. On LinkLost, ProtocolError, SealError or RosterError the link is closed."""
        try:
            if self._due is None:
                self._opener.header[:] = await self._wire.read(HEADER.size)
                self._due = self._look()
            self._opener.room(self._due)[:] = await self._wire.read(self._due.body_len)
            kind, length, self._due = self._due.type, self._due.body_len, None
            body = bytes(self._opener.open())
            self._received.bytes += HEADER.size + length
            if kind is FrameType.ROSTER:
                reported = decode_bundle(body)
                self.peer_stand, self.peer_points = reported.stand, [reported.stand, *reported.points]
                self._heard.add(reported.stand)
                self._open_if(not self._told.isdisjoint(self._heard))
            elif not self._is_open and kind not in (FrameType.RESUME, FrameType.GREETING):
                raise ProtocolError(f"{self.peer_name} sent frame 0x{kind:02x} before the rosters were equal.")
        except MaclusterError:
            self.close()
            raise
        return kind, body

    def needs_new_keys(self, limits: KeyUse) -> bool:
        return self._sent.use.reaches(limits) or self._received.use.reaches(limits)

    def succeed(self, link: ControlLink) -> None:
        """Send RESUME, the last frame of this link, and continue on `link`. Raises LinkLost, SealError."""
        self._put(FrameType.RESUME, b"")
        link._held, self._held = self._held, []
        link._open_if(self._is_open)

    def close(self) -> None:
        """Close the link; pending data is still sent for up to a second."""
        self._wire.close()

    async def wait_closed(self) -> None:
        await self._wire.wait_closed()

    def _look(self) -> FrameHeader:
        header = self._opener.look()
        if header.body_len > MAX_CONTROL_BODY + TAG_BYTES:
            raise ProtocolError(f"{self.peer_name} sent a control message of {header.body_len} bytes.")
        return header

    def _put(self, kind: FrameType, body: bytes) -> None:
        self._wire.write(bytes(self._sealer.seal(kind, parts=[body])))
        self._sent.bytes += HEADER.size + len(body) + TAG_BYTES

    def _open_if(self, is_equal: bool) -> None:
        """Release held frames once the rosters match. Later roster changes don't hold frames back, not even one that
        crosses the other end's answer.
        """
        self._is_open |= is_equal
        while self._is_open and self._held:
            self._put(*self._held.pop(0))


async def dial_control(
    host: str,
    port: int,
    *,
    identity: Identity,
    cluster: Cluster,
    peer_id: bytes | None,
    timeout_s: float,
    on_proof: Callable[[Member], None] = lambda _: None,
    kind: Kind = Kind.CONTROL,
    interface: str = "",
) -> ControlLink:
    """Open a link to `peer_id`, or to any member if None, through `interface` ("": any).

    `on_proof` gets the member whose key answered before anything is sent to it, and may raise. Raises LinkLost,
    LinkTimeout, HandshakeError, SealError or ProtocolError.
    """
    where = f"{host} port {port}"
    connecting = partial(
        asyncio.get_running_loop().create_connection,
        **await connect_arguments(host, port, timeout_s, interface),
        ssl=client_context(identity, cluster),
        server_hostname="macluster",  # else the address would go out in clear
        ssl_shutdown_timeout=GOODBYE_S,
    )
    try:
        async with asyncio.timeout(timeout_s), open_tls_stream(connecting, where, host) as wire:
            on_proof(check_peer(wire.certificate, cluster))
            return ControlLink(wire, await dialler_handshake(wire, identity, cluster, peer_id, kind))
    except OSError as error:
        raise link_error(error, where) from error


class ControlServer:
    """Listens for control links; same methods as asyncio.Server."""

    def __init__(
        self,
        listener: socket.socket,
        identity: Identity,
        cluster: Callable[[], Cluster],
        on_link: Callable[[ControlLink], Awaitable[None]],
    ) -> None:
        self.sockets, self.admission = (listener,), ConnectionAdmission()
        self._identity, self._cluster, self._on_link = identity, cluster, on_link
        self._made: tuple[Cluster, ssl.SSLContext] | None = None
        self._handshakes: dict[asyncio.Task[None], float] = {}  # and until when none has to make room
        self._links: dict[asyncio.Task[None], bytes] = {}  # and whose they are
        self._listening = asyncio.create_task(self._listen(listener), name="control listener")
        self._listening.add_done_callback(lambda _: listener.close())  # also where it is closed before it has begun

    def close(self) -> None:
        self._listening.cancel()
        for task in self._handshakes:
            task.cancel()

    async def serve_forever(self) -> None:
        await self._listening

    async def wait_closed(self) -> None:
        await asyncio.gather(self._listening, *self._handshakes, return_exceptions=True)

    async def _listen(self, listener: socket.socket) -> None:
        async for sock, address in accept_connections(listener, self._crowd_out):
            host = caller_address(listener, address)
            if host and self.admission.admits(host, monotonic(), len(self._links)):
                try:
                    await self._room()
                except asyncio.CancelledError:
                    sock.close()
                    raise
                self._receive(sock, host)
            else:
                sock.close()

    def _receive(self, sock: socket.socket, host: str) -> None:
        task = asyncio.create_task(self._accept_link(sock, host))
        self._handshakes[task] = monotonic() + SILENT_S
        task.add_done_callback(lambda done: self._sent_away(done, sock))

    async def _room(self) -> None:
        """Drop silent handshakes first, slow ones after a grace period, so that a burst can't cancel honest ones."""
        while len(self._handshakes) >= HANDSHAKES:
            if (left := min(self._handshakes.values()) - monotonic()) > 0:
                await asyncio.wait(self._handshakes, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            else:
                self._crowd_out()

    def _crowd_out(self) -> None:
        if self._handshakes:
            slowest = min(self._handshakes, key=self._handshakes.__getitem__)
            del self._handshakes[slowest]
            slowest.cancel()
            self.admission.counts["refused_full"] += 1

    def _sent_away(self, task: asyncio.Task[None], sock: socket.socket) -> None:
        """Close the socket of a failed handshake; a task cancelled before its start closes nothing itself."""
        self._handshakes.pop(task, None)
        if task.cancelled() or _failed(task):
            sock.close()

    async def _accept_link(self, sock: socket.socket, host: str) -> None:
        """Run one handshake; a failed one is closed without a reply."""
        visit = HandshakeProgress()
        try:
            if not await self._first_word(sock):
                sock.close()
                return
            link = await self._shake_hands(sock, host, visit)
        except (MaclusterError, OSError) as error:
            self.admission.failed(visit, error)
            sock.close()
            return
        task = asyncio.create_task(self._hand_over(link))
        self._links[task] = link.peer_id
        task.add_done_callback(lambda done: self._ended(done, link))

    def _ended(self, task: asyncio.Task[None], link: ControlLink) -> None:
        del self._links[task]
        if _failed(task):
            link.close()

    async def _hand_over(self, link: ControlLink) -> None:
        await self._on_link(link)
        await link.wait_closed()

    async def _first_word(self, sock: socket.socket) -> bool:
        """Wait for the first byte. False if the other end hung up, as path measurements do. Raises OSError."""
        async with asyncio.timeout(TLS_TIMEOUT_S):
            await readable(sock)
        if (task := asyncio.current_task()) in self._handshakes:
            self._handshakes[task] = monotonic() + GRACE_S
        return bool(sock.recv(1, socket.MSG_PEEK))

    async def _shake_hands(self, sock: socket.socket, host: str, visit: HandshakeProgress) -> ControlLink:
        cluster = self._cluster()
        connect = partial(
            asyncio.get_running_loop().connect_accepted_socket,
            sock=sock,
            ssl=self._context(cluster),
            ssl_handshake_timeout=TLS_TIMEOUT_S,
            ssl_shutdown_timeout=GOODBYE_S,
        )
        async with open_tls_stream(connect, host, host) as wire, asyncio.timeout(HELLO_TIMEOUT_S):
            link = ControlLink(wire, await acceptor_handshake(wire, self._identity, cluster, visit))
            if Counter(self._links.values())[link.peer_id] >= PEER_LINKS:
                raise ProtocolError(f"{link.peer_name} has too many links.")
            return link

    def _context(self, cluster: Cluster) -> ssl.SSLContext:
        if self._made is None or self._made[0] != cluster:
            self._made = (cluster, server_context(self._identity, cluster))
        return self._made[1]


def _failed(task: asyncio.Task[None]) -> bool:
    """Whether the task ended with an unexpected error, which is reported to the event loop's exception handler."""
    if task.cancelled() or (error := task.exception()) is None:
        return False
    task.get_loop().call_exception_handler({"message": "A control link failed.", "exception": error, "task": task})
    return True


async def serve_control(
    host: str,
    port: int,
    *,
    identity: Identity,
    cluster: Callable[[], Cluster],
    on_link: Callable[[ControlLink], Awaitable[None]],
) -> ControlServer:
    """Listen on `host` and `port` (0: any); `cluster` is called per connection. Raises PortTaken or LinkLost."""
    try:
        listener = open_listener(host, port, BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"Port {port} is in use by {port_holder(port)}.") from error
        cure = "See which addresses this Mac has (`macluster doctor`), and which ports this account may take."
        raise LinkLost(f"This Mac cannot listen on {host} port {port}: {error.strerror}.", cure) from error
    return ControlServer(listener, identity, cluster, on_link)
