"""Results of benches, printed as text or JSON."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from core.errors import MaclusterError

R = TypeVar("R")


def cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def system() -> str:
    return f"{platform.system()} {platform.machine()}"


def print_result(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], R],
    describe: Callable[[R], str],
    arguments: Sequence[str] | None,
) -> int:
    """Parse the options of a bench, measure, and print the result. Returns the exit status."""
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
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
