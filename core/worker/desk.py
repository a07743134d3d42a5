"""The commands that the node has sent, sorted while a request runs."""

from __future__ import annotations

from collections import deque

from core.worker.messages import Cancel, Command
from core.worker.pipe import Inbox


class Desk:
    """Cancels take effect at once, everything else waits its turn."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self._later: deque[Command] = deque()
        self._cancelled: set[str] = set()

    def sort(self) -> None:
        """Read all commands that have come."""
        while (command := self.inbox.take()) is not None:
            if isinstance(command, Cancel):
                self._cancelled.add(command.request_id)
            else:
                self._later.append(command)

    def cancelled(self, request_id: str) -> bool:
        """Whether the person took this request back."""
        self.sort()
        return request_id in self._cancelled

    def next(self) -> Command | None:
        """The command whose turn it is, if any."""
        self.sort()
        return self._later.popleft() if self._later else None

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._cancelled.discard(request_id)
