"""TLS 1.3 with certificates on both sides; only the roster's certificates are trusted.

Every line avoids a trap of security.md §2.2: no tickets (a resumed session skips the check), no default context (it
honours SSLKEYLOGFILE), and the exact key instead of a name is compared after every handshake.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import sys
from typing import Final

from core.errors import HandshakeError, IdentityError, LinkError, LinkLost, LinkTimeout, SealError, WrongKey
from core.mac import local_network_permission
from core.trust.identity import Identity, certificate_key, device_id_of, text_id
from core.trust.levels import carries_prompts
from core.trust.roster.bundle import Cluster
from core.trust.roster.format import Member

TLS_TIMEOUT_S: Final = 5.0
KEEPALIVE_S: Final = 15
PAIR_FIRST: Final = "Pair it first: `macluster pair`."


def client_context(identity: Identity, cluster: Cluster) -> ssl.SSLContext:
    """Raises HandshakeError if the key or a certificate can't be loaded."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity, cluster)


def server_context(identity: Identity, cluster: Cluster) -> ssl.SSLContext:
    """A new roster needs a new context: certificates can't be removed from one. Raises as `client_context` does."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity, cluster)
    context.num_tickets = 0
    return context


def _context(protocol: int, identity: Identity, cluster: Cluster) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    others = b"".join(c for i, c in cluster.certificates.items() if i != identity.device_id)
    try:
        context.load_cert_chain(identity.certificate_path, identity.key_path, identity.passphrase)
        if others:
            context.load_verify_locations(cadata=others)
    except (ssl.SSLError, OSError) as error:
        raise HandshakeError(f"This Mac's key or a member's certificate cannot be loaded: {error}.") from error
    return context


def check_peer(certificate: bytes | None, cluster: Cluster, peer_id: bytes | None = None) -> Member:
    """The certificate's owner; must be `peer_id` if given. Raises WrongKey; HandshakeError if not paired."""
    try:
        public = certificate_key(certificate or b"")
    except IdentityError as error:
        raise WrongKey(f"A Mac showed a certificate that is not accepted: {error.what}") from error
    device_id = device_id_of(public)
    member = cluster.roster.member(device_id)
    if member is None or member.public != public:
        raise WrongKey(f"Mac {text_id(device_id)[:8]} is not in this cluster.", PAIR_FIRST)
    if peer_id is not None and device_id != peer_id:
        raise WrongKey(f"{member.name} answered where {text_id(peer_id)[:8]} was expected.")
    if not carries_prompts(member.level):
        raise HandshakeError(f"{member.name} is {member.level}.", PAIR_FIRST)
    return member


def tune(sock: socket.socket) -> None:
    """Send small frames at once, and detect a vanished peer. For both ends of every link."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
    if idle is not None:
        sock.setsockopt(socket.IPPROTO_TCP, idle, KEEPALIVE_S)


def link_error(error: OSError, where: str) -> LinkError:
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return LinkLost(f"{where} closed the link.")
    if isinstance(error, ssl.SSLCertVerificationError):
        return WrongKey(f"{where} is not a Mac of this cluster.", PAIR_FIRST)
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", None) or "refused"  # asyncio makes some without
        if reason == "DECRYPTION_FAILED_OR_BAD_RECORD_MAC":
            return SealError(f"Bytes from {where} were changed on the way.")
        return HandshakeError(f"{where} and this Mac do not agree on TLS ({reason}).")
    if isinstance(error, TimeoutError):
        return LinkTimeout(f"{where} did not answer in time.")
    if error.errno == errno.EHOSTUNREACH and sys.platform == "darwin":
        cure = f"{local_network_permission.advice(os.environ)} Or check the cable."
        return LinkLost(f"{where} cannot be reached from this app.", cure)
    if error.errno == errno.ECONNREFUSED:
        return LinkLost(f"Nothing listens at {where}.")
    return LinkLost(f"The link to {where} broke: {error.strerror or error}.")
