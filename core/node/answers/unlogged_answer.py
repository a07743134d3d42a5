"""In place of the token log of an answer that is to be kept nowhere: nobody could go on with it once this node is gone.
Until then it is known in memory, as every answer is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from core.events import FinishReason


class UnloggedAnswer:
    """Takes what a `TokenLog` takes, and writes nothing."""

    unsynced = 0

    def append(self, token: int) -> None:
        """A token counts at once."""

    def say(self, text: str) -> None:
        """Text is shown."""

    def join(self, macs: Collection[str]) -> None:
        """Further Macs take part."""

    def syncing(self) -> Callable[[], None]:
        """Nothing waits to be written."""
        return lambda: None

    def close(self, reason: FinishReason | None = None) -> None:
        """It has ended."""

    def forget(self) -> None:
        """There is nothing to delete."""
