"""Keep models out of Time Machine's backups: they are large, and can be downloaded again. Source: tmutil(8)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from core.mac.system_command import said

TMUTIL: Final = "/usr/bin/tmutil"


def exclude(folder: Path) -> None:
    """Exclude `folder` and all in it, wherever it is moved; does nothing where tmutil isn't installed."""
    said(TMUTIL, "addexclusion", str(folder))
