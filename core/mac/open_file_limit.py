"""Limit of open files per process. The default of 256 is too low for a hundred clients."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

WANTED: Final = 4096


def allowed_descriptors() -> int:
    """The wanted limit, or the highest this user may set."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)


def raise_descriptor_limit() -> None:
    """Raise the limit up to the highest this user may set; child processes inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = allowed_descriptors()
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS may allow less than it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stay_within_the_hard_limit() -> None:
    """Let mlx_lm be imported under a low hard limit: it asks for 4096 files and fails otherwise."""
    if allowed_descriptors() == WANTED:
        return
    ask = resource.setrlimit

    def ask_within(which: int, limits: tuple[int, int]) -> None:
        most = resource.getrlimit(which)[1]
        is_beyond = which == resource.RLIMIT_NOFILE and most != resource.RLIM_INFINITY
        ask(which, (min(limits[0], most), min(limits[1], most)) if is_beyond else limits)

    resource.setrlimit = ask_within
