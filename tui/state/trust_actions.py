"""Changes of trust that this Mac allows: reasons against them, and confirmations. Pure."""

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
    """A change as it is confirmed: its effect, and the words for cancelling and doing it."""

    title: str
    effect: str
    no: str
    yes: str


def why_not(view: TrustView, mac: TrustedMac | None, action: TrustAction) -> str:
    """Why a change isn't possible now; "" if it is."""
    if action == "decide":
        return "" if view.fork else "There is only one roster."
    if view.fork:
        return "Choose between the two rosters first (d)."
    if view.epoch == 0:
        return "This Mac isn't paired with another Mac yet."
    if action == "rotate":
        return ""
    if action == "recover":
        return "" if view.has_recovery else "No recovery words exist yet."
    if not view.is_admin:
        return "Only an admin Mac can do this."
    return _why_not_that_mac(view, mac, action) if action in _ABOUT_A_MAC else ""


def _why_not_that_mac(view: TrustView, mac: TrustedMac | None, action: TrustAction) -> str:
    if mac is None or mac.role not in ("admin", "member"):
        return "This Mac isn't a member of the cluster."
    is_last = mac.role == "admin" and sum(m.role == "admin" for m in view.macs) == 1
    return "This is the only admin." if is_last and action in ("revoke", "admin") else ""


def checked_name(name: str) -> str:
    """A valid name for a Mac. Raises UsageError."""
    if (size := len(name.encode())) > LONGEST_NAME:
        raise UsageError(f"A name can be {LONGEST_NAME} bytes long; this one has {size}.")
    return name


def checked_phrase(words: str) -> str:
    """All 24 words. Raises UsageError."""
    if (count := len(words.split())) != RECOVERY_WORDS:
        raise UsageError(f"Type all {RECOVERY_WORDS} words; you typed {count}.")
    return words


def question(view: TrustView, mac: TrustedMac, action: TrustAction) -> Question:
    """The confirmation for a change that has one."""
    name = f"{mac.name} ({mac.device_id[:8]})"
    match action:
        case "revoke" if mac.is_self:
            effect = "This Mac leaves the cluster. Its connections close at once, and its key can never be used again."
            return Question(f"Revoke this Mac, {name}?", effect, "Cancel", "Revoke this Mac")
        case "revoke":
            effect = (
                "It is removed on every Mac at once: its connections close, and its key can never be used again. "
                "A model that uses it stops."
            )
            return Question(f"Revoke {name}?", effect, "Cancel", f"Revoke {mac.name}")
        case "admin" if mac.role == "admin":
            effect = "It can no longer add or revoke Macs. It can still hold layers."
            return Question(f"Remove {name} as admin?", effect, "Cancel", "Remove admin")
        case "admin":
            effect = "It can then add Macs and revoke any Mac, including this one."
            return Question(f"Make {name} an admin?", effect, "Cancel", "Make it admin")
        case "words" if not view.has_recovery:
            effect = "24 words are shown once. Write them down: they save the cluster if no admin Mac is left."
            return Question("Make recovery words?", effect, "Cancel", "Make recovery words")
        case "words":
            effect = "24 new words are shown once. The old words stop working."
            return Question("New recovery words?", effect, "Keep the old ones", "Make new words")
        case _:
            effect = (
                "This Mac gets a new key and a new id, and the old key is revoked. "
                "Its connections close and come back by themselves."
            )
            return Question("Make a new key for this Mac?", effect, "Cancel", "Make a new key")
