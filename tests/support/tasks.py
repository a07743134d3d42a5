"""Starts the tasks of a node's part in tests that have no whole node."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.tasks import Tasks


def tasks_of(journal: Journal | None = None) -> Tasks:
    """Tasks that nothing stops."""
    return Tasks(journal or Journal(Path(os.devnull), "mac", Bus()), asyncio.Event())
