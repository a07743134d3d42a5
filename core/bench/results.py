"""What benches have in common: ratios with their reach, and how a result is printed."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeVar

import msgspec

from core.errors import MaclusterError

R = TypeVar("R")


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What a ratio should be: at most, or at least, `limit`. `counts` is False where the reach says nothing here."""

    limit: float
    at_most: bool
    reached: bool
    counts: bool = True

    def line(self, name: str, ratio: float) -> str:
        """The verdict in words."""
        bound = f"{'at most' if self.at_most else 'at least'} {self.limit:g}"
        verdict = "reached" if self.reached else "NOT reached"
        return f"{name}: {ratio:.2f}, wanted {bound}: {verdict if self.counts else 'does not count here'}"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What every bench gives: ratios, their reach where the design names one, and where it ran."""

    ratios: dict[str, float]
    reach: dict[str, Aim]
    cores: int
    system: str

    def verdict(self, ratio: str, words: str) -> str:
        """The line for people about a ratio that has a reach."""
        return self.reach[ratio].line(words, self.ratios[ratio])


def reach(ratio: float, *, at_most: float | None = None, at_least: float | None = None, counts: bool = True) -> Aim:
    """The verdict on `ratio`; exactly one bound is given."""
    if at_most is not None:
        return Aim(limit=at_most, at_most=True, reached=ratio <= at_most, counts=counts)
    assert at_least is not None
    return Aim(limit=at_least, at_most=False, reached=ratio >= at_least, counts=counts)


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def system() -> str:
    """Operating system and processor family."""
    return f"{platform.system()} {platform.machine()}"


def medians(samples: list[dict[str, float]]) -> dict[str, float]:
    """The median of every name, over samples that all have the same names."""
    return {name: median(s[name] for s in samples) for name in samples[0]}


def speed(times: Sequence[float]) -> float:
    """Tokens a second between the first and the last one, which came at `times` in seconds."""
    return (len(times) - 1) / (times[-1] - times[0])


def print_result(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], R],
    describe: Callable[[R], str],
    arguments: Sequence[str] | None,
) -> int:
    """The life of a bench: options, measurement, and one JSON object or text for people. Returns the exit status."""
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    args = parser.parse_args(arguments)
    try:
        result = measure(args)
    except MaclusterError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(msgspec.json.encode(result).decode() if args.json else describe(result))
    return 0


def end_in_order() -> None:
    """Let SIGTERM unwind as Ctrl+C does, so that workers and temporary folders go with the bench."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def positive(text: str) -> int:
    """A whole number of at least one, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
