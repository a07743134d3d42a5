"""A check of `macluster verify`, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from core.errors import MaclusterError
from core.events import Value

LIMIT_S: Final = 15.0


class Outcome(Value, frozen=True, kw_only=True):
    """What a check saw. `figure` is made of numbers and of words that stand in the code: what a machine, a person or
    another program calls something is not told, since people attach this to an issue.
    """

    passed: bool = False
    figure: str = ""
    skipped_because: str | None = None


class CheckResult(Outcome, frozen=True, kw_only=True):
    """The outcome of the check `name`, and how many seconds it took."""

    name: str
    seconds: float

    @property
    def failed(self) -> bool:
        """Neither passed nor skipped."""
        return not self.passed and self.skipped_because is None


class Check(NamedTuple):
    """`run` is called with an event that is set when nobody waits for it any more; what it raises is a failure."""

    name: str
    proves: str
    run: Callable[[threading.Event], Outcome]
    limit_s: float = LIMIT_S


def passed(figure: str) -> Outcome:
    """It is as it should be."""
    return Outcome(passed=True, figure=figure)


def failed(figure: str) -> Outcome:
    """It is not; `figure` says what is so in its place."""
    return Outcome(figure=figure)


def skipped(why: str) -> Outcome:
    """It cannot be looked at here."""
    return Outcome(skipped_because=why)


NOT_A_MAC: Final = skipped("not a Mac")


def in_words(error: Exception) -> Outcome:
    """A check that raised: the kind of the error alone, for its text may name a person's things."""
    kind = type(error).__name__
    return failed(f"it ended with {kind}" if isinstance(error, MaclusterError | OSError) else f"a defect: {kind}")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `macluster verify --json` prints. `system` says what kind of machine and which programs, never which one."""

    version: str
    system: dict[str, str]
    checks: list[CheckResult]
    seconds: float

    @property
    def failed(self) -> list[CheckResult]:
        """Those that are not as they should be."""
        return [each for each in self.checks if each.failed]
