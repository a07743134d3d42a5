"""Stands in for the token log of an answer that is not kept."""

from __future__ import annotations

from collections.abc import Callable, Collection

from core.events import FinishReason


class UnloggedAnswer:
    """Has the methods of `TokenLog`, and writes nothing."""

    unsynced = 0

    def append(self, token: int) -> None: ...

    def say(self, text: str) -> None: ...

    def join(self, macs: Collection[str]) -> None: ...

    def syncing(self) -> Callable[[], None]:
        return lambda: None

    def close(self, reason: FinishReason | None = None) -> None: ...

    def forget(self) -> None: ...
