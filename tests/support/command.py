"""The command in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path


async def macluster(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tui.cli.main", "--home", str(home), *words, "--json"]
    return await asyncio.to_thread(
        subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
