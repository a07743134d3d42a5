"""What the parts of a node start their tasks with, where a test has only one of those parts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.tasks import Tasks


def tasks_of(journal: Journal | None = None) -> Tasks:
    """Tasks that nobody stops."""
    return Tasks(journal or Journal(Path(os.devnull), "mac", Bus()), asyncio.Event())
