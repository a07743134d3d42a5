"""Deletes half-written files of killed nodes when the next node starts."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import Final

from core.errors import SealError
from core.node.disks.copy_checks import PARTIAL
from core.settings import Home
from core.trust.sealed_files import forget

BEING_WRITTEN_S: Final = 60.0  # younger ones may belong to a running screen or command
GIVEN_UP_S: Final = 14 * 86_400.0  # untouched copies older than this are abandoned


def sweep(home: Home, now: float) -> None:
    """Delete temporary files in `home` and abandoned copies of models. `now`: seconds since the epoch.

    Ignores files that the system refuses to delete.
    """
    folders = (
        home.identity,
        home.rosters,
        home.tokens,
        home.sessions,
        home.conversations,
        home.split_profiles,
        home.references,
    )
    for folder in (home.root, *folders):
        for left in folder.glob("*.tmp"):
            with suppress(OSError, SealError):
                if left.is_file() and left.lstat().st_mtime < now - BEING_WRITTEN_S:
                    forget(left)
    for begun in (home.models / PARTIAL).glob("*"):
        with suppress(OSError):
            if max(each.lstat().st_mtime for each in (begun, *begun.iterdir())) < now - GIVEN_UP_S:
                shutil.rmtree(begun)
