"""The pairing code: six digits that each Mac shows, and that the person at the other one types (security.md §2.4)."""

from __future__ import annotations

import hmac
from typing import Final

CODE_DIGITS: Final = 6


def code_from(secret: bytes) -> str:
    """The code that both Macs draw from what they share, 8 bytes of it."""
    return f"{int.from_bytes(secret, 'big') % 10**CODE_DIGITS:0{CODE_DIGITS}d}"


def parse_code(typed: str) -> str | None:
    """The code in what a person typed, with or without spaces; None where it is none."""
    code = "".join(typed.split())
    return code if len(code) == CODE_DIGITS and code.isascii() and code.isdecimal() else None


def is_code(typed: str, code: str) -> bool:
    """Whether `typed`, spaces ignored, is `code`; how far they agree does not show in the time that it takes."""
    return hmac.compare_digest("".join(typed.split()).encode(), code.encode())


def format_code(code: str) -> str:
    """As it is read aloud: "061 648"."""
    half = CODE_DIGITS // 2
    return f"{code[:half]} {code[half:]}"
