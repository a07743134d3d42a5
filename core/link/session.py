"""The session inside TLS (SIGMA shape: ephemeral X25519, signature and MAC over the transcript) and the seal of every
frame, security.md §2.5. Bytes in, bytes out; randomness is passed in.

HELLO, 152 bytes, little-endian: "MCH1" | ver u16 | suite u16 | kind u8 | flags u8 | 6 zero | cluster_id 16 | my_id 16
| peer_id 16 | epoch u64 | roster_hash 32 | ephemeral 32 | nonce 16. Its first 6 bytes are the same in every version;
the flags of version 1 are signed, and no bit has a meaning yet.
A (who dialled) sends M1; B answers M2 | AUTH_B; A sends AUTH_A; an AUTH is signature 64 | mac 32.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from core.errors import HandshakeError, OtherVersion
from core.trust.identity import Identity, expand, extract, is_signed
from core.trust.levels import carries_prompts
from core.trust.roster.bundle import Cluster
from core.trust.roster.format import SUITE, Member, Stand

Random = Callable[[int], bytes]
Side = Literal["A", "B"]

HELLO: Final = struct.Struct("<4sHHBB6s16s16s16sQ32s32s16s")
AUTH_BYTES: Final = 96
REPLY_BYTES: Final = HELLO.size + AUTH_BYTES
HELLO_TIMEOUT_S: Final = 2.0  # for the whole handshake inside TLS
VERSION: Final = 1


class Kind(IntEnum):
    """Purpose of a link. CONTROL may carry rosters until both ends have the same one, so that two sides of a fork can
    exchange the proof; the others need equal rosters from the start. PATH only measures its path.
    """

    CONTROL = 0
    DATA = 1
    PATH = 2


@dataclass(frozen=True, slots=True)
class LinkSession:
    """An agreed session: its keys and its peer."""

    peer_id: bytes
    peer_stand: Stand
    cluster_id: bytes
    sid: bytes
    side: Side
    send_key: bytes = field(repr=False)
    recv_key: bytes = field(repr=False)

    def aad_prefix(self, *, outgoing: bool) -> bytes:
        """First 33 of the 81 bytes that every seal covers: cluster, session, direction (0: A to B)."""
        return self.cluster_id + self.sid + bytes([(self.side == "A") != outgoing])


class _Hello(NamedTuple):
    magic: bytes
    version: int
    suite: int
    kind: int
    flags: int
    zero: bytes
    cluster_id: bytes
    my_id: bytes
    peer_id: bytes
    epoch: int
    roster_hash: bytes
    ephemeral: bytes
    nonce: bytes


class _Agreement(NamedTuple):
    transcript_hash: bytes
    prk: bytes
    session: LinkSession


class _Party:
    """Shared by both sides: own hello, checks of the other's, and the key schedule."""

    def __init__(
        self, identity: Identity, cluster: Cluster, peer: Member, kind: Kind, certificate: bytes, random: Random
    ) -> None:
        """`certificate`: DER that the peer showed in TLS; `peer`: the member it belongs to."""
        self._identity, self._cluster, self._peer, self._kind = identity, cluster, peer, kind
        self._certificate = certificate
        self._agreed: _Agreement | None = None
        self._ephemeral = X25519PrivateKey.from_private_bytes(random(32))
        if not carries_prompts(peer.level):
            raise HandshakeError(f"{peer.name} is not paired.", "Pair it first: `macluster pair`.")
        begin, roster = (b"MCH1", VERSION, SUITE, kind, 0, bytes(6)), cluster.roster
        ids = (roster.cluster_id, identity.device_id, peer.device_id, roster.epoch, roster.hash)
        self.hello = HELLO.pack(*begin, *ids, self._ephemeral.public_key().public_bytes_raw(), random(16))

    def judge(self, data: bytes) -> _Hello:
        """Make every check that comes before a signature. Raises HandshakeError, OtherVersion."""
        if len(data) != HELLO.size:
            raise HandshakeError(f"A hello has {HELLO.size} bytes, not {len(data)}.")
        hello, name, roster = _Hello(*HELLO.unpack(data)), self._peer.name, self._cluster.roster
        if hello.magic != b"MCH1":
            raise HandshakeError(f"{name} sent no hello.")
        if hello.version != VERSION:
            what = f"{name} begins links in version {hello.version}, this Mac in version {VERSION}."
            raise OtherVersion(what, f"Update macluster on {name if hello.version < VERSION else 'this Mac'}.")
        if hello.suite != SUITE:
            raise HandshakeError(f"{name} offers cipher suite {hello.suite}; this Mac has {SUITE}.")
        if hello.kind != self._kind or any(hello.zero):
            raise HandshakeError(f"{name} asked for another kind of link than the one it called.")
        if hello.cluster_id != roster.cluster_id:
            raise HandshakeError(f"{name} belongs to another cluster.", "Pair the two Macs again.")
        if hello.peer_id != self._identity.device_id:
            raise HandshakeError(f"{name} was calling another Mac.")
        if hello.my_id != self._peer.device_id:
            raise HandshakeError(f"The Mac that proved to be {name} says that it is another one.")
        if self._kind is not Kind.CONTROL:
            _judge_stand(name, Stand(hello.epoch, hello.roster_hash), roster.stand)
        return hello

    def _agree(self, side: Side, m1: bytes, m2: bytes, theirs: _Hello) -> _Agreement:
        """Run the key schedule. Raises HandshakeError if the peer's ephemeral key forces a known secret."""
        own, other = (hashlib.sha256(c).digest() for c in (self._identity.certificate_der, self._certificate))
        certificates = own + other if side == "A" else other + own
        transcript_hash = hashlib.sha256(b"macluster/1 hop\0" + certificates + m1 + m2).digest()
        try:
            shared = self._ephemeral.exchange(X25519PublicKey.from_public_bytes(theirs.ephemeral))
        except ValueError as error:
            raise HandshakeError(f"{self._peer.name} sent a key that would make the secret known.") from error
        prk = extract(transcript_hash, shared)
        keys = [expand(prk, b"macluster/1 key " + direction) for direction in (b"A>B", b"B>A")]
        send, receive = keys if side == "A" else reversed(keys)
        session = LinkSession(
            peer_id=self._peer.device_id,
            peer_stand=Stand(theirs.epoch, theirs.roster_hash),
            cluster_id=self._cluster.roster.cluster_id,
            sid=expand(prk, b"macluster/1 sid", 16),
            side=side,
            send_key=send,
            recv_key=receive,
        )
        return _Agreement(transcript_hash, prk, session)

    def _auth(self, side: Side, agreed: _Agreement) -> bytes:
        signature = self._identity.sign(_words(side, agreed.transcript_hash))
        return signature + _mac(side, agreed.prk, self._identity.device_id, signature)

    def _check_auth(self, side: Side, agreed: _Agreement, auth: bytes) -> None:
        signature, mac = auth[:64], auth[64:]
        if not hmac.compare_digest(mac, _mac(side, agreed.prk, self._peer.device_id, signature)):
            raise HandshakeError(f"{self._peer.name} does not hold the keys of this session.")
        if not is_signed(self._peer.public, signature, _words(side, agreed.transcript_hash)):
            raise HandshakeError(f"{self._peer.name} did not sign this session with its device key.")


def node_link_kind(m1: bytes) -> Kind:
    """Link kind that a dialling node asks for: PATH, else CONTROL; later checks use it."""
    return Kind.PATH if _Hello(*HELLO.unpack(m1)).kind == Kind.PATH else Kind.CONTROL


def _judge_stand(name: str, theirs: Stand, ours: Stand) -> None:
    if theirs.epoch != ours.epoch:
        raise HandshakeError(f"{name} has the roster of epoch {theirs.epoch}, this Mac that of {ours.epoch}.")
    if theirs != ours:
        cure = "Two admins changed the roster at once: decide which one counts with `macluster trust resolve`."
        raise HandshakeError(f"The roster forked: {name} has another one of epoch {ours.epoch}.", cure)


def _words(side: Side, transcript_hash: bytes) -> bytes:
    return b"macluster/1 auth " + side.encode() + b"\0" + transcript_hash


def _mac(side: Side, prk: bytes, device_id: bytes, signature: bytes) -> bytes:
    key = expand(prk, b"macluster/1 mac " + side.encode())
    return hmac.digest(key, device_id + signature, "sha256")


class Dialler(_Party):
    """Side A: sends `hello`, then calls `finish(reply)`."""

    def finish(self, reply: bytes) -> tuple[bytes, LinkSession]:
        """AUTH_A and the session, from B's 248 bytes. Raises HandshakeError."""
        m2, auth = reply[: HELLO.size], reply[HELLO.size :]
        agreed = self._agree("A", self.hello, m2, self.judge(m2))
        self._check_auth("B", agreed, auth)
        return self._auth("A", agreed), agreed.session


class Acceptor(_Party):
    """Side B: `reply(m1)`, then `finish(auth)`."""

    def reply(self, m1: bytes) -> bytes:
        self._agreed = self._agree("B", m1, self.hello, self.judge(m1))
        return self.hello + self._auth("B", self._agreed)

    def finish(self, auth: bytes) -> LinkSession:
        """The session, after A authenticated. Raises HandshakeError."""
        assert self._agreed, "`reply` comes first"
        self._check_auth("A", self._agreed, auth)
        return self._agreed.session
