"""Session handshake of a control link inside TLS, ending with one sealed empty frame each way."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from core.errors import OtherVersion, ProtocolError
from core.link.connection_admission import HandshakeProgress
from core.link.frames import HEADER, TAG_BYTES, FrameType
from core.link.seal import Opener, Sealer
from core.link.session import AUTH_BYTES, HELLO, Acceptor, Dialler, Kind, node_link_kind
from core.link.tls import check_peer
from core.link.tls_stream import TlsStream
from core.trust.identity import Identity
from core.trust.roster.bundle import Cluster
from core.trust.roster.format import Member, Stand


class HandshakeResult(NamedTuple):
    """Result of the handshake."""

    sealer: Sealer
    opener: Opener
    peer: Member
    stands: tuple[Stand, Stand]  # this Mac's roster, the peer's roster
    kind: Kind


async def dialler_handshake(
    wire: TlsStream, identity: Identity, cluster: Cluster, peer_id: bytes | None, kind: Kind
) -> HandshakeResult:
    peer = check_peer(wire.certificate, cluster, peer_id)
    dialler = Dialler(identity, cluster, peer, kind, wire.certificate, secrets.token_bytes)
    wire.write(dialler.hello)
    m2 = await wire.read(HELLO.size)
    dialler.judge(m2)  # nothing follows the hello of another version
    auth, session = dialler.finish(m2 + await wire.read(AUTH_BYTES))
    sealer, opener = Sealer(session), Opener(session)
    wire.write(auth + bytes(sealer.seal(FrameType.HELLO)))
    await _expect(wire, opener, FrameType.HELLO_ACK)
    return HandshakeResult(sealer, opener, peer, (cluster.roster.stand, session.peer_stand), kind)


async def acceptor_handshake(
    wire: TlsStream, identity: Identity, cluster: Cluster, visit: HandshakeProgress
) -> HandshakeResult:
    """Run the acceptor's side and record progress in `visit`. Raises as `dialler_handshake` does."""
    peer = check_peer(wire.certificate, cluster)
    visit.step = "failed_hello"
    m1 = await wire.read(HELLO.size)
    kind = node_link_kind(m1)
    acceptor = Acceptor(identity, cluster, peer, kind, wire.certificate, secrets.token_bytes)
    try:
        wire.write(acceptor.reply(m1))
    except OtherVersion:
        wire.write(acceptor.hello)  # so that the other end can say which version this one has
        await wire.drain()
        raise
    visit.step = "failed_auth"
    session = acceptor.finish(await wire.read(AUTH_BYTES))
    sealer, opener = Sealer(session), Opener(session)
    await _expect(wire, opener, FrameType.HELLO)
    wire.write(bytes(sealer.seal(FrameType.HELLO_ACK)))
    return HandshakeResult(sealer, opener, peer, (cluster.roster.stand, session.peer_stand), kind)


async def _expect(wire: TlsStream, opener: Opener, kind: FrameType) -> None:
    """Check the first sealed frame, which has no body: it proves that the other end has the keys."""
    header, body = opener.open_frame(await wire.read(HEADER.size + TAG_BYTES))
    if header.type is not kind or len(body):
        raise ProtocolError(f"A control link began with frame 0x{header.type:02x}.")
