"""The commands that the node has sent, sorted while a request runs."""

from __future__ import annotations

from collections import deque

from core.errors import error_from
from core.worker.messages import Cancel, Command, Sever
from core.worker.pipe import Inbox


class Desk:
    """Cancels take effect at once, a sever interrupts, everything else waits its turn."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.plan_gen = 0
        self._later: deque[Command] = deque()
        self._cancelled: set[str] = set()

    def sort(self) -> None:
        """Read all commands that have come. Raises the LinkError of a Sever of the running plan."""
        while (command := self.inbox.take()) is not None:
            if isinstance(command, Cancel):
                self._cancelled.add(command.request_id)
            elif isinstance(command, Sever):
                if command.plan_gen == self.plan_gen:
                    raise error_from(command.problem)
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
