"""How many files a process may have open: 256 where nobody says otherwise, which a hundred clients use up."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

WANTED: Final = 4096


def raise_descriptor_limit() -> None:
    """As far as this user may; the processes that this one starts have the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS may allow less than it says: then it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
