"""After both users confirmed: which Mac makes the next roster, and what it contains. Pure."""

from __future__ import annotations

import struct
from typing import Final, Literal, NamedTuple

from core.errors import IdentityError, PairingError
from core.trust.identity import MAX_CERTIFICATE, Identity, certificate_key
from core.trust.pairing import Confirmed
from core.trust.roster.bundle import encode_bundle
from core.trust.roster.changes import add, found
from core.trust.roster.format import Roster, encode, new_member

NO_CLUSTER: Final = bytes(16)

_CARD: Final = struct.Struct("<16sQBH")


class Card(NamedTuple):
    """Sent by each side after confirming: its certificate and its cluster."""

    certificate: bytes
    cluster_id: bytes = NO_CLUSTER
    epoch: int = 0
    is_admin: bool = False


def encode_card(card: Card) -> bytes:
    """Little-endian: cluster_id 16 | epoch u64 | is_admin u8 | length u16 | certificate DER."""
    return _CARD.pack(card.cluster_id, card.epoch, card.is_admin, len(card.certificate)) + card.certificate


def decode_card(data: bytes) -> Card:
    """Decode a card without checking its certificate. Raises PairingError."""
    if len(data) < _CARD.size:
        raise PairingError("The other Mac's card ends too soon.")
    cluster_id, epoch, admin, length = _CARD.unpack_from(data)
    if admin > 1 or length > MAX_CERTIFICATE or len(data) != _CARD.size + length:
        raise PairingError("The other Mac's card is malformed.")
    return Card(data[_CARD.size :], cluster_id, epoch, bool(admin))


def decide(mine: Card, theirs: Card, *, initiator: bool) -> Literal["found", "admit", "join"]:
    """Whether to "found" a cluster, "admit" the peer to ours, or "join" theirs. Raises PairingError if none fits."""
    if mine.cluster_id == theirs.cluster_id == NO_CLUSTER:
        return "found" if initiator else "join"
    if mine.cluster_id == theirs.cluster_id:
        raise PairingError("These two Macs are already paired.", "`macluster trust list` shows it.")
    if NO_CLUSTER not in (mine.cluster_id, theirs.cluster_id):
        cure = "Remove the roster folder of the Mac that should move, and pair it again."
        raise PairingError("The two Macs belong to different clusters.", cure)
    holder = mine if theirs.cluster_id == NO_CLUSTER else theirs
    if not holder.is_admin:
        raise PairingError(
            "The Mac that is in a cluster is not an admin of it.", "Pair from an admin's Mac, or make this one admin."
        )
    return "admit" if holder is mine else "join"


def check_may_pair(identity: Identity, roster: Roster | None) -> None:
    """Check, before digits are shown, that this Mac may pair. Raises PairingError."""
    if roster and not roster.admin(identity.device_id):
        raise PairingError(
            "This Mac is in a cluster, but not an admin of it.",
            "Pair from an admin's Mac, or make this one an admin there (`macluster trust promote`).",
        )


def card_of(identity: Identity, roster: Roster | None) -> Card:
    if roster is None:
        return Card(identity.certificate_der)
    return Card(identity.certificate_der, roster.cluster_id, roster.epoch, bool(roster.admin(identity.device_id)))


def check_certificate(card: Card, peer: Confirmed) -> None:
    """Check that the card's certificate belongs to the compared key. Raises PairingError."""
    try:
        public = certificate_key(card.certificate)
    except IdentityError as error:
        raise PairingError(f"The other Mac's certificate is not accepted: {error.what}") from error
    if public != peer.public:
        raise PairingError("The other Mac's certificate is not for the key that was compared.")


def found_with(identity: Identity, name: str, cluster_id: bytes, peer: Confirmed, theirs: Card) -> bytes:
    first = found(identity, name, cluster_id)
    second = add(first, identity, new_member(peer.public, peer.raw_name, 2))
    certificates = [identity.certificate_der, theirs.certificate]
    return encode_bundle(second.stand, [encode(first), encode(second)], certificates)


def admit(identity: Identity, roster: Roster, peer: Confirmed, theirs: Card) -> bytes:
    """Bundle with a roster that contains the peer; no new epoch if it is a member already. Raises RosterError."""
    if roster.member(peer.device_id) is None:
        roster = add(roster, identity, new_member(peer.public, peer.raw_name, roster.epoch + 1))
    return encode_bundle(roster.stand, [encode(roster)], [theirs.certificate])


def check_joined(roster: Roster, identity: Identity, peer: Confirmed, theirs: Card) -> None:
    """Check the roster received while joining: both Macs in it, the peer as admin. Raises PairingError."""
    if not roster.member(identity.device_id) or not roster.admin(peer.device_id):
        raise PairingError("The other Mac sent a roster that does not hold both Macs.")
    if theirs.cluster_id not in (NO_CLUSTER, roster.cluster_id):
        raise PairingError("The other Mac sent the roster of another cluster.")
