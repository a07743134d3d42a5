"""The one place where foreign text is made safe for a terminal, a log or a file name.

Textual and Rich pass escape sequences through, so a peer's name or a model's output could control the terminal (OSC 52
writes the clipboard). Everything shown passes `clean_name` or `clean_text` first; widgets take `Clean`.
"""

from __future__ import annotations

import unicodedata
from typing import NewType

Clean = NewType("Clean", str)

NAME_LIMIT = 32
NAME_BYTES = 32

_BIDI = frozenset([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F])
_SEPARATORS = {0x2028: "\n", 0x2029: "\n"}
_ONE_LINE = {0x09: " ", 0x0A: " "}


def clean_name(raw: bytes | str) -> Clean | None:
    """A name in NFC without control characters, at most 32 characters; None if nothing is left, or it isn't UTF-8."""
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8")
        except UnicodeDecodeError:
            return None
    kept = "".join(c for c in unicodedata.normalize("NFC", raw) if _fits_name(c))
    kept = unicodedata.normalize("NFC", kept)[:NAME_LIMIT].strip()
    return Clean(kept) if kept else None


def name_bytes(name: str) -> bytes:
    """A Mac's name in signed data: UTF-8, cut to 32 bytes between two characters."""
    return name.encode("utf-8", "ignore")[:NAME_BYTES].decode("utf-8", "ignore").encode()


def _fits_name(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] in "LMNPS" or category == "Zs"


def clean_text(raw: str) -> Clean:
    """Remove control characters (except newline and tab) and bidirectional overrides; unify line ends."""
    if raw.isascii() and raw.isprintable():
        return Clean(raw)
    return Clean("".join(c for c in raw.translate(_SEPARATORS) if _fits_text(ord(c))))


def clean_line(raw: str) -> Clean:
    """Like `clean_text`, in one line: no text that is shown in a list can look like another entry."""
    return Clean(clean_text(raw).translate(_ONE_LINE))


def _fits_text(code: int) -> bool:
    if code < 0x20:
        return code in (0x09, 0x0A)
    return not (0x7F <= code < 0xA0 or code in _BIDI or 0xD800 <= code < 0xE000)
