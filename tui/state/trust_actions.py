"""What a person may change about trust from this Mac: why not, and what it would do. Pure."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from core.errors import UsageError
from core.requests.trust import TrustedMac, TrustView

TrustAction = Literal["revoke", "admin", "rename", "rotate", "words", "recover", "decide"]
TRUST_ACTIONS: Final[tuple[TrustAction, ...]] = ("revoke", "admin", "rename", "rotate", "words", "recover", "decide")
LONGEST_NAME: Final = 32  # bytes
RECOVERY_WORDS: Final = 24
_ABOUT_A_MAC: Final = ("revoke", "admin", "rename")


class Question(NamedTuple):
    """A change as the person is asked about it: what it does, and the words for leaving it and for doing it."""

    title: str
    effect: str
    no: str
    yes: str


def why_not(view: TrustView, mac: TrustedMac | None, action: TrustAction) -> str:
    """Why a change cannot be made now; "" if it can."""
    if action == "decide":
        return "" if view.fork else "there is no fork to decide"
    if view.fork:
        return "the fork has to be decided first"
    if view.epoch == 0:
        return "this Mac is paired with no other yet"
    if action == "rotate":
        return ""
    if action == "recover":
        return "" if view.has_recovery else "no recovery words were ever made"
    if not view.is_admin:
        return "only an admin's Mac can"
    return _why_not_that_mac(view, mac, action) if action in _ABOUT_A_MAC else ""


def _why_not_that_mac(view: TrustView, mac: TrustedMac | None, action: TrustAction) -> str:
    if mac is None or mac.role not in ("admin", "member"):
        return "it is not in the roster"
    is_last = mac.role == "admin" and sum(m.role == "admin" for m in view.macs) == 1
    return "the last admin has to stay one" if is_last and action in ("revoke", "admin") else ""


def checked_name(name: str) -> str:
    """A name that a Mac may be given. Raises UsageError."""
    if (size := len(name.encode())) > LONGEST_NAME:
        raise UsageError(f"A name has {LONGEST_NAME} bytes at most; that has {size}.")
    return name


def checked_phrase(words: str) -> str:
    """As many words as there are on paper. Raises UsageError."""
    if (count := len(words.split())) != RECOVERY_WORDS:
        raise UsageError(f"There are {RECOVERY_WORDS} words on the paper, not {count}.")
    return words


def question(view: TrustView, mac: TrustedMac, action: TrustAction) -> Question:
    """The question before a change that has one."""
    name = f"{mac.name} ({mac.device_id[:8]})"
    match action:
        case "revoke" if mac.is_self:
            effect = "This Mac leaves the cluster, and its key never comes back. Its links close at once."
            return Question(f"Revoke this Mac, {name}?", effect, "Keep it", "Revoke this Mac")
        case "revoke":
            effect = (
                "It is revoked on every Mac at once: its links close, and its key never comes back. "
                "A model that is loaded over it stops."
            )
            return Question(f"Revoke {name}?", effect, f"Keep {mac.name}", f"Revoke {mac.name}")
        case "admin" if mac.role == "admin":
            effect = "It can no longer add or revoke Macs. It still holds layers."
            return Question(f"{name} no longer an admin?", effect, "Leave it an admin", "Make it a member")
        case "admin":
            effect = "It can then add Macs and revoke any Mac, this one too."
            return Question(f"Make {name} an admin?", effect, "Leave it a member", "Make it an admin")
        case "words" if not view.has_recovery:
            effect = "24 words are shown once, for paper: they save the cluster when no admin's Mac is left."
            return Question("Make recovery words?", effect, "Not now", "Make the words")
        case "words":
            effect = "24 new words are shown once. Words that were written down before no longer work then."
            return Question("New recovery words?", effect, "Keep the old ones", "Make new words")
        case _:
            effect = (
                "This Mac gets a new key and a new id, and the old key is revoked. "
                "Its links close and come back by themselves."
            )
            return Question("A new key for this Mac?", effect, "Keep the key", "Make a new key")
