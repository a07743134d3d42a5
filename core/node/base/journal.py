"""The node's log: JSON lines on disk, LogLine events for readers. No prompt and no key is ever written here."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Literal

from core.events import LogLine
from core.node.base.bus import Bus
from core.text import clean_text

LINE_LIMIT = 500
FILE_LIMIT = 4 << 20

Severity = Literal["DEBUG", "INFO", "WARN", "ERROR"]


class Journal:
    """Writes what happened on this Mac. The file starts anew (one old file is kept) at 4 MiB."""

    def __init__(self, path: Path, source: str, bus: Bus) -> None:
        self._path = path
        self._source = source
        self._bus = bus

    def info(self, text: str) -> None:
        """Something went as it should."""
        self.write("INFO", text)

    def warn(self, text: str) -> None:
        """Something a person may want to know."""
        self.write("WARN", text)

    def error(self, text: str) -> None:
        """Something failed."""
        self.write("ERROR", text)

    def write(self, level: Severity, text: str, source: str = "") -> None:
        """One line; foreign text is cleaned here."""
        line = LogLine(
            at=time.time(), level=level, source=source or self._source, text=clean_text(text)[:LINE_LIMIT].rstrip()
        )
        with contextlib.suppress(OSError):  # a full disk must not stop the node; readers still get the line
            self._append({"at": line.at, "level": level, "source": line.source, "text": line.text})
        self._bus.publish(line)

    def _append(self, fields: dict[str, object]) -> None:
        if self._path.exists() and self._path.stat().st_size > FILE_LIMIT:
            self._path.replace(self._path.with_suffix(".log.1"))
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "a", encoding="ascii") as file:
            file.write(json.dumps(fields, ensure_ascii=True) + "\n")
