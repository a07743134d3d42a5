"""Open data links: blocking sockets, one connection and one thread per direction (security.md §2.2, §2.8).

After TLS and the session handshake both ends exchange the binding (32 bytes, a digest of the plan) in sealed HELLO and
HELLO_ACK frames. The link is ready once both have compared it.
"""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Generator
from contextlib import closing
from time import monotonic
from typing import Final

from core.errors import HandshakeError, LinkLost, MaclusterError, ProtocolError
from core.link.concurrent_handshakes import Alarm, ConcurrentHandshakes
from core.link.data_link import DataLink, Frame, LinkStats, Receiver, Sender
from core.link.frames import HEADER, TAG_BYTES, FrameType
from core.link.listener import open_listener
from core.link.network_paths import NetworkPath, connect
from core.link.seal import Opener, Sealer
from core.link.session import AUTH_BYTES, HELLO, HELLO_TIMEOUT_S, REPLY_BYTES, Acceptor, Dialler, Kind
from core.link.tls import TLS_TIMEOUT_S, check_peer, client_context, link_error, server_context, tune
from core.trust.identity import Identity
from core.trust.roster.bundle import Cluster

__all__ = ["Alarm", "DataLink", "Frame", "LinkStats", "Receiver", "Sender", "accept", "dial", "listen"]

BACKLOG: Final = 1024  # the system takes less: 128 on a Mac
BINDING_BYTES: Final = 32
_BINDING_FRAME: Final = HEADER.size + BINDING_BYTES + TAG_BYTES


def listen(host: str) -> socket.socket:
    """Listen on a free port of `host`, an IPv4 or IPv6 address of this Mac. Raises LinkLost."""
    try:
        return open_listener(host, 0, BACKLOG)
    except OSError as error:
        raise LinkLost(f"This Mac cannot listen on {host}: {error.strerror or error}.", "Check its network.") from error


def dial(
    host: str,
    port: int,
    *,
    identity: Identity,
    cluster: Cluster,
    peer_id: bytes,
    binding: bytes,
    timeout_s: float,
    plain: socket.socket | None = None,
) -> DataLink:
    """Open a link to `peer_id`, over the connected `plain` if given. Raises a LinkError or ProtocolError."""
    deadline = monotonic() + timeout_s
    where = f"{host} port {port}"
    context = client_context(identity, cluster)
    if plain is None:
        plain, _ = connect((NetworkPath(host),), port, timeout_s)
    tls: socket.socket = plain
    try:
        tune(plain)
        plain.settimeout(_left(deadline))
        tls = sock = context.wrap_socket(plain)
        certificate = sock.getpeercert(binary_form=True)
        member = check_peer(certificate, cluster, peer_id)
        dialler = Dialler(identity, cluster, member, Kind.DATA, certificate or b"", secrets.token_bytes)
        sock.sendall(dialler.hello)
        auth, session = dialler.finish(_read(sock, REPLY_BYTES, deadline))
        sealer = Sealer(session)
        sock.sendall(auth + bytes(sealer.seal(FrameType.HELLO, parts=[binding])))
        opener = Opener(session)
        _check_binding(opener, _read(sock, _BINDING_FRAME, deadline), FrameType.HELLO_ACK, binding)
        return DataLink(sock, sealer, opener, peer_id, member.name)
    except OSError as error:
        tls.close()
        raise link_error(error, where) from error
    except MaclusterError:
        tls.close()
        raise


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read(sock: ssl.SSLSocket, length: int, deadline: float) -> bytes:
    data = b""
    while len(data) < length:
        sock.settimeout(_left(deadline))
        piece = sock.recv(length - len(data))
        if not piece:
            raise LinkLost("It closed the link during the handshake: it may not know this Mac, or this plan.")
        data += piece
    return data


def _check_binding(opener: Opener, frame: bytes, kind: FrameType, binding: bytes) -> None:
    header, body = opener.open_frame(frame)
    if header.type is not kind:
        raise ProtocolError(f"A link began with frame 0x{header.type:02x}.")
    if body != binding:
        raise HandshakeError("The other Mac has another plan.", "Load the model again.")


def accept(
    listener: socket.socket,
    *,
    identity: Identity,
    cluster: Cluster,
    peer_id: bytes,
    binding: bytes,
    timeout_s: float,
    alarm: Alarm | None = None,
) -> DataLink:
    """Accept the link that `peer_id` dials. Other connections are refused and can't delay it, however many there are
    (`core.link.concurrent_handshakes`).

    Raises LinkTimeout after `timeout_s`, HandshakeError if our own key can't be loaded, and what `alarm` raises.
    """
    handshake = _Handshake(identity, cluster, peer_id, binding)
    with closing(ConcurrentHandshakes(listener, handshake, alarm)) as lobby:
        return lobby.wait(monotonic() + timeout_s)


class _Handshake:
    def __init__(self, identity: Identity, cluster: Cluster, peer_id: bytes, binding: bytes) -> None:
        self._identity, self._cluster, self.peer_id, self._binding = identity, cluster, peer_id, binding
        self._context = server_context(identity, cluster)

    def wrap(self, plain: socket.socket) -> ssl.SSLSocket:
        tune(plain)
        return self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

    def steps(self, sock: ssl.SSLSocket) -> Generator[float, None, DataLink]:
        while True:
            try:
                sock.do_handshake()
                break
            except ssl.SSLWantReadError:
                yield TLS_TIMEOUT_S
        certificate = sock.getpeercert(binary_form=True)
        member = check_peer(certificate, self._cluster, self.peer_id)
        acceptor = Acceptor(self._identity, self._cluster, member, Kind.DATA, certificate or b"", secrets.token_bytes)
        sock.send(acceptor.reply((yield from _take(sock, HELLO.size))))
        session = acceptor.finish((yield from _take(sock, AUTH_BYTES)))
        opener = Opener(session)
        _check_binding(opener, (yield from _take(sock, _BINDING_FRAME)), FrameType.HELLO, self._binding)
        sealer = Sealer(session)
        sock.send(sealer.seal(FrameType.HELLO_ACK, parts=[self._binding]))
        return DataLink(sock, sealer, opener, self.peer_id, member.name)


def _take(sock: ssl.SSLSocket, length: int) -> Generator[float, None, bytes]:
    data = b""
    while len(data) < length:
        try:
            piece = sock.recv(length - len(data))
        except ssl.SSLWantReadError:
            yield HELLO_TIMEOUT_S
            continue
        if not piece:
            raise LinkLost("It closed the link during the handshake.")
        data += piece
    return data
