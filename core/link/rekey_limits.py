"""Key usage and its limits (security.md §3)."""

from __future__ import annotations

from typing import Final

import msgspec

from core.numbers import Seconds, Size


class KeyUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a key has carried, or may carry at most. Bytes are counted inside TLS, the age on a monotonic clock."""

    frames: Size = 0
    bytes: Size = 0
    age_s: Seconds = 0.0

    def reaches(self, limits: KeyUse) -> bool:
        """Whether any of the three limits is reached."""
        return self.frames >= limits.frames or self.bytes >= limits.bytes or self.age_s >= limits.age_s


# a link is dialled anew at the first of these, long before a key has sealed its last frame
KEY_LIMITS: Final = KeyUse(frames=1 << 32, bytes=64 << 30, age_s=3600.0)
