"""The pairing code: six digits that each Mac shows and the user types on the other one (security.md §2.4)."""

from __future__ import annotations

import hmac
from typing import Final

CODE_DIGITS: Final = 6


def code_from(secret: bytes) -> str:
    return f"{int.from_bytes(secret, 'big') % 10**CODE_DIGITS:0{CODE_DIGITS}d}"


def parse_code(typed: str) -> str | None:
    """The code in typed text, spaces ignored; None if it isn't one."""
    code = "".join(typed.split())
    return code if len(code) == CODE_DIGITS and code.isascii() and code.isdecimal() else None


def is_code(typed: str, code: str) -> bool:
    """Compare typed text with the code in constant time, spaces ignored."""
    return hmac.compare_digest("".join(typed.split()).encode(), code.encode())


def format_code(code: str) -> str:
    """Format a code for reading aloud: "061 648"."""
    half = CODE_DIGITS // 2
    return f"{code[:half]} {code[half:]}"
