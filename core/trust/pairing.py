"""Pairing by six digits: commit, reveal, compare, confirm (security.md §2.4). Bytes in, bytes out, no clock.

P1 A>B  "MCP1" | commit 32,   commit = SHA-256("macluster/1 pair commit\\0" || P3)
P2 B>A  key 32 | ephemeral 32 | nonce 32 | name length u8 | name
P3 A>B  the same of A
P4 both signature 64 | mac 32, each sent only after that side's person typed the digits of the other screen
Afterwards both talk in notes that carry a MAC under the same key: first the cards, then (P5) the roster.

One class a step, each made by the step before it, so nothing can be done out of order: `Offer` (A) or `PairingAnswer`
(B) -> `Comparison` -> `Pledge` -> `Confirmed`. Only the last holds a key that may be trusted.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from core.errors import PairingError
from core.events import PairingChanged
from core.pairing_code import code_from, is_code
from core.text import NAME_BYTES, clean_name, name_bytes
from core.trust.identity import Identity, device_id_of, expand, extract, is_signed, text_id

Random = Callable[[int], bytes]
Side = Literal["A", "B"]

P1_BYTES: Final = 36
REVEAL_BYTES: Final = 97  # and as many more as the last of them says
P4_BYTES: Final = 96
WINDOW_S: Final = 120.0
APART_S: Final = 10.0
ATTEMPTS: Final = 3


class Revealed(NamedTuple):
    """P2 or P3 parsed."""

    public: bytes
    ephemeral: bytes
    raw_name: bytes


def reveal_length(head: bytes) -> int:
    """Bytes of name after the first 97 of P2 or P3. Raises PairingError."""
    if head[-1] > NAME_BYTES:
        raise PairingError(f"The other Mac sent a name of {head[-1]} bytes; {NAME_BYTES} are allowed.")
    return head[-1]


def _take_apart(message: bytes) -> Revealed:
    if len(message) < REVEAL_BYTES or len(message) != REVEAL_BYTES + reveal_length(message[:REVEAL_BYTES]):
        raise PairingError("The other Mac sent a pairing message of the wrong length.")
    return Revealed(message[:32], message[32:64], message[REVEAL_BYTES:])


def _commitment(p3: bytes) -> bytes:
    return b"MCP1" + hashlib.sha256(b"macluster/1 pair commit\0" + p3).digest()


class _Self:
    """Own key, a fresh ephemeral key, and the message that reveals them."""

    def __init__(self, identity: Identity, name: str, random: Random) -> None:
        self.identity = identity
        self.ephemeral = X25519PrivateKey.from_private_bytes(random(32))
        public, called = self.ephemeral.public_key().public_bytes_raw(), name_bytes(name)
        self.reveal = identity.public + public + random(32) + bytes([len(called)]) + called


class Offer:
    """Side A before B answers. `commit` is P1."""

    def __init__(self, identity: Identity, name: str, random: Random) -> None:
        self._me = _Self(identity, name, random)
        self.commit = _commitment(self._me.reveal)

    def reveal(self, p2: bytes) -> tuple[bytes, Comparison]:
        p3 = self._me.reveal
        return p3, Comparison(self._me, "A", _take_apart(p2), self.commit + p2 + p3)


class PairingAnswer:
    """Side B after A's commitment. `reveal` is P2. Every answer gives the caller one guess: see `Window`."""

    def __init__(self, identity: Identity, name: str, random: Random, p1: bytes) -> None:
        if len(p1) != P1_BYTES or p1[:4] != b"MCP1":
            raise PairingError("The other end does not speak the pairing protocol of this version.")
        self._me = _Self(identity, name, random)
        self._p1 = p1
        self.reveal = self._me.reveal

    def check(self, p3: bytes) -> Comparison:
        if not hmac.compare_digest(_commitment(p3), self._p1):
            raise PairingError("The other end changed its key after it had committed to it: somebody is in between.")
        return Comparison(self._me, "B", _take_apart(p3), self._p1 + self.reveal + p3)


class Comparison:
    """Both keys are known; only the two users can tell whether they are the right ones."""

    def __init__(self, me: _Self, side: Side, peer: Revealed, transcript: bytes) -> None:
        if peer.public == me.identity.public:
            raise PairingError("A Mac cannot be paired with itself.", "Choose another Mac.")
        try:
            shared = me.ephemeral.exchange(X25519PublicKey.from_public_bytes(peer.ephemeral))
        except ValueError as error:
            raise PairingError("The other Mac sent a key that would make the secret known to everyone.") from error
        self._identity, self._side, self._peer = me.identity, side, peer
        self._th = hashlib.sha256(b"macluster/1 pair\0" + transcript).digest()
        self._prk = extract(self._th, shared)
        device_id = text_id(device_id_of(peer.public))
        self.view = PairingChanged(  # shown to the user; the name is unproven
            state="compare",
            peer=clean_name(peer.raw_name) or device_id[:8],
            device_id=device_id,
            fingerprint=hashlib.sha256(peer.public).hexdigest(),
            digits=code_from(expand(self._prk, b"macluster/1 sas", 8)),
        )

    def confirm(self, typed: str) -> tuple[bytes, Pledge]:
        """P4, if `typed` (spaces ignored) are the digits. Raises PairingError; both sides then forget everything."""
        if not is_code(typed, self.view.digits):
            raise PairingError(
                "The digits are not those of the other screen: a typo, or somebody is in between. Nothing was kept.",
                "Start again on both Macs. If they differ again, use a cable, or another network.",
            )
        theirs: Side = "B" if self._side == "A" else "A"
        signature = self._identity.sign(_confirmation(self._side, self._th))
        mac = hmac.digest(self._key(self._side), self._identity.public + signature, "sha256")
        pledge = Pledge(self._peer, _confirmation(theirs, self._th), self._key(self._side), self._key(theirs))
        return signature + mac, pledge

    def _key(self, side: Side) -> bytes:
        return expand(self._prk, b"macluster/1 pair mac " + side.encode())


def _confirmation(side: Side, th: bytes) -> bytes:
    return b"macluster/1 pair confirm " + side.encode() + b"\0" + th


class Pledge:
    """Our user has confirmed; the other one may still refuse."""

    def __init__(self, peer: Revealed, their_words: bytes, my_key: bytes, their_key: bytes) -> None:
        self._peer, self._their_words, self._my_key, self._their_key = peer, their_words, my_key, their_key

    def verify(self, p4: bytes) -> Confirmed:
        signature, mac = p4[:64], p4[64:]
        expected = hmac.digest(self._their_key, self._peer.public + signature, "sha256")
        if not hmac.compare_digest(mac, expected) or not is_signed(self._peer.public, signature, self._their_words):
            raise PairingError("The other Mac's confirmation does not hold.")
        return Confirmed(self._peer, self._my_key, self._their_key)


class Confirmed:
    """The peer's key, confirmed by both users; `pack` and `unpack` authenticate the next messages in order."""

    def __init__(self, peer: Revealed, my_key: bytes, their_key: bytes) -> None:
        self.public = peer.public
        self.device_id = device_id_of(peer.public)
        self.raw_name = peer.raw_name
        self._my_key, self._their_key = my_key, their_key
        self._sent = self._received = 0

    def pack(self, note: bytes) -> bytes:
        self._sent += 1
        return note + _note_mac(self._my_key, self._sent, note)

    def unpack(self, packed: bytes) -> bytes:
        """The note. Raises PairingError if it was changed or is not the next one."""
        self._received += 1
        note = packed[:-32]
        if not hmac.compare_digest(packed[-32:], _note_mac(self._their_key, self._received, note)):
            raise PairingError("A pairing message was changed on the way.")
        return note


def _note_mac(key: bytes, number: int, note: bytes) -> bytes:
    return hmac.digest(key, b"macluster/1 pair note\0" + number.to_bytes(8, "little") + note, "sha256")


class Window:
    """Limits attempts while the pairing window is open. Times in seconds of one monotonic clock.

    An attempt counts when P2 is about to be sent, not when it fails: after P2 an attacker in the middle knows its
    digits, and would hang up and retry until they match.
    """

    def __init__(
        self, opened_at: float, *, window_s: float = WINDOW_S, attempts: int = ATTEMPTS, apart_s: float = APART_S
    ) -> None:
        self.closes_at = opened_at + window_s
        self._left = attempts
        self._apart_s = apart_s
        self._next_at = opened_at

    @property
    def is_spent(self) -> bool:
        return self._left == 0

    def admit(self, now: float) -> None:
        if now >= self.closes_at or self.is_spent:
            raise PairingError("The pairing window is closed.", "Open it again on both Macs.")
        if now < self._next_at:
            raise PairingError(f"The last attempt was less than {self._apart_s:.0f} s ago.", "Wait, then try again.")
        self._left -= 1
        self._next_at = now + self._apart_s
