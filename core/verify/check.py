"""A check of `macluster verify`, its outcome, and the report."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from core.errors import MaclusterError
from core.events import Value

LIMIT_S: Final = 15.0


class Outcome(Value, frozen=True, kw_only=True):
    """Outcome of a check."""

    passed: bool = False
    # numbers and our own words, no name of a machine, person or program: people attach reports to issues
    figure: str = ""
    skipped_because: str | None = None


class CheckResult(Outcome, frozen=True, kw_only=True):
    """Outcome of the check `name`."""

    name: str
    seconds: float

    @property
    def failed(self) -> bool:
        return not self.passed and self.skipped_because is None


class Check(NamedTuple):
    """One check. An exception from `run` counts as a failure."""

    name: str
    proves: str
    run: Callable[[threading.Event], Outcome]  # the event is set when the result is no longer needed
    limit_s: float = LIMIT_S


def passed(figure: str) -> Outcome:
    return Outcome(passed=True, figure=figure)


def failed(figure: str) -> Outcome:
    """A failure; `figure` says what was found."""
    return Outcome(figure=figure)


def skipped(why: str) -> Outcome:
    return Outcome(skipped_because=why)


NOT_A_MAC: Final = skipped("not a Mac")


def in_words(error: Exception) -> Outcome:
    """The failure of a check that raised: only the kind of the error, since its text may hold personal names."""
    kind = type(error).__name__
    return failed(f"ended with {kind}" if isinstance(error, MaclusterError | OSError) else f"a defect: {kind}")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `macluster verify --json` prints."""

    version: str
    system: dict[str, str]  # kind of machine and versions of programs, nothing that identifies it
    checks: list[CheckResult]
    seconds: float

    @property
    def failed(self) -> list[CheckResult]:
        return [each for each in self.checks if each.failed]
