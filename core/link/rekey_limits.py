"""Key usage and its limits (security.md §3)."""

from __future__ import annotations

from typing import Final

import msgspec

from core.numbers import Seconds, Size


class KeyUse(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a key, or its limits. Bytes are counted inside TLS, the age on a monotonic clock."""

    frames: Size = 0
    bytes: Size = 0
    age_s: Seconds = 0.0

    def reaches(self, limits: KeyUse) -> bool:
        return self.frames >= limits.frames or self.bytes >= limits.bytes or self.age_s >= limits.age_s


# a link is dialled again at the first of these limits, long before its key is used up
KEY_LIMITS: Final = KeyUse(frames=1 << 32, bytes=64 << 30, age_s=3600.0)
