"""The node's log: JSON lines on disk, LogLine events for readers. No prompt and no key is ever written here."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Literal

from core.events import LogLine
from core.node.base.bus import Bus
from core.snapshot import LOG_LINES_KEPT
from core.text import clean_text

LINE_LIMIT = 500
FILE_LIMIT = 4 << 20

Severity = Literal["DEBUG", "INFO", "WARN", "ERROR"]


class Journal:
    """Writes the log of the Mac `source`; at 4 MiB a new file is started, and one old file is kept."""

    def __init__(self, path: Path, source: str, bus: Bus) -> None:
        self._path = path
        self._source = source
        self._bus = bus
        self.run = secrets.randbits(48)  # identifies this start of the node; its lines count from 1
        self._kept: deque[LogLine] = deque(maxlen=LOG_LINES_KEPT)
        self.written = 0  # lines since the start of the node

    def info(self, text: str) -> None:
        self.write("INFO", text)

    def warn(self, text: str) -> None:
        self.write("WARN", text)

    def error(self, text: str) -> None:
        self.write("ERROR", text)

    def write(self, level: Severity, text: str) -> None:
        line = LogLine(at=time.time(), level=level, source=self._source, text=clean_text(text)[:LINE_LIMIT].rstrip())
        with contextlib.suppress(OSError):  # a full disk must not stop the node; readers still get the line
            self._append({"at": line.at, "level": level, "source": line.source, "text": line.text})
        self._kept.append(line)
        self.written += 1
        self._bus.publish(line)

    def after(self, number: int, most: int) -> tuple[int, tuple[LogLine, ...]]:
        """Up to `most` of the kept lines after line `number`, and the number of the last of them."""
        gone = self.written - len(self._kept)
        first = max(number, gone)
        lines = tuple(islice(self._kept, first - gone, first - gone + most))
        return first + len(lines), lines

    def _append(self, fields: dict[str, object]) -> None:
        if self._path.exists() and self._path.stat().st_size > FILE_LIMIT:
            self._path.replace(self._path.with_suffix(".log.1"))
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "a", encoding="ascii") as file:
            file.write(json.dumps(fields, ensure_ascii=True) + "\n")
