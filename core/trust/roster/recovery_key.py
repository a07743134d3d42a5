"""The recovery key: 24 words that make another Mac admin when the last admin is lost. It is no Mac.

The words are the Ed25519 seed in BIP-39's English list, with 8 bits of checksum in the last one. Only the public key is
stored, in the roster; the words are shown once and used once (`core.trust.roster.changes.recover`).
"""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Callable
from functools import cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from mnemonic import Mnemonic

from core.errors import RosterError, UsageError
from core.text import clean_name
from core.trust.identity import device_id_of
from core.trust.roster.format import Member, Role, Roster, new_member

WORDS: Final = 24


class RecoveryKey:
    """The complete key; exists only while it is shown or signs a roster."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()
        self.device_id = device_id_of(self.public)

    @property
    def words(self) -> str:
        return _list().to_mnemonic(self._seed)

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


def make_recovery_key(random: Callable[[int], bytes] = secrets.token_bytes) -> RecoveryKey:
    return RecoveryKey(random(32))


def parse_words(text: str) -> RecoveryKey:
    """The key of 24 typed words in any case and spacing. Raises UsageError, naming the wrong word."""
    typed = text.lower().split()
    if len(typed) != WORDS:
        raise UsageError(f"A recovery key has {WORDS} words; these are {len(typed)}.", "Type them in their order.")
    known = _list().wordlist
    for number, word in enumerate(typed, 1):
        if word not in known:
            near = difflib.get_close_matches(word, known, 1)
            cure = f'Is it "{near[0]}"?' if near else "Look at the paper again."
            raise UsageError(f'Word {number}, "{clean_name(word)}", is not a word of the list.', cure)
    try:
        return RecoveryKey(bytes(_list().to_entropy(typed)))
    except ValueError as error:
        cure = "One word is wrong, or two are swapped: compare each with the paper."
        raise UsageError("Each word is in the list, but together they are not a key.", cure) from error


def check_recovery_key(roster: Roster, key: RecoveryKey) -> None:
    """Check that this is the recovery key of `roster`. Raises RosterError with the reason."""
    spent = roster.revocation(key.device_id)
    if spent:
        what = f"These words were used up or replaced in epoch {spent.epoch}; newer ones count."
        raise RosterError(what, "Take the newest paper.")
    if roster.recovery is None:
        raise RosterError("This cluster has no recovery key.", "Without an admin its Macs have to be paired again.")
    if roster.recovery.public != key.public:
        raise RosterError("These words are a recovery key, but of another cluster.", "Take this cluster's paper.")


def as_member(public: bytes, epoch: int) -> Member:
    """A recovery key's roster entry; "unpaired", so that it never counts as a Mac that may see prompts."""
    return new_member(public, b"recovery key", epoch, Role.RECOVERY, "unpaired")


@cache
def _list() -> Mnemonic:
    return Mnemonic("english")
