"""Runs random inputs on one target, within limits of time and memory, and keeps the inputs that break it."""

from __future__ import annotations

import hashlib
import importlib
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from cryptography.utils import CryptographyDeprecationWarning
from hypothesis import HealthCheck, settings

from tests.fuzz.target import Target, bend

NAMES: Final = (
    *("hello", "header", "roster", "control", "work", "txt", "index", "folder", "tokenizer", "events"),
    *("asked", "heads", "answer", "system"),
)
FAILURES: Final = Path("fuzz-failures")
# Of this process's own time, whatever else the machine does (other processes compile MLX's kernels), and of the clock.
TIMERS: Final = {signal.ITIMER_PROF: 5.0, signal.ITIMER_REAL: 60.0}
MEMORY: Final = 4 << 30
SHAPE_BYTES: Final = 2048
SHAPE_EVERY: Final = 20  # one of these costs as much as about twenty changed seeds


def load(name: str) -> Target:
    """The target in `tests/fuzz/NAME.py`."""
    found: Target = importlib.import_module(f"tests.fuzz.{name}").target()
    return found


def ways_in(target: Target) -> dict[str, Callable[[bytes], object]]:
    """The target's entry points: plain bytes, and the draws of a hypothesis test."""
    ways: dict[str, Callable[[bytes], object]] = {"bytes": target.attack}
    if target.shaped is not None:
        relaxed = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))(target.shaped)
        ways["shape"] = relaxed.hypothesis.fuzz_one_input
    return ways


@contextmanager
def limits() -> Iterator[None]:
    """Limits of processor time, clock time and memory; exceeding one is a defect."""

    def hangs(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("one input took too long")

    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, hangs)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, before[1]))
    try:
        yield
    finally:
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        resource.setrlimit(resource.RLIMIT_DATA, before)


def fuzz(target: Target, seconds: float, seed: int, keep_in: Path) -> tuple[int, Path | None]:
    """Try inputs for `seconds`; returns their number, and the file of the first one that broke the target."""
    warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # odd certificates, which most inputs are
    dice = random.Random(f"{seed} {target.name}")
    ways, tried, until = ways_in(target), 0, time.monotonic() + seconds
    try:
        with limits():
            while time.monotonic() < until:
                way = "bytes" if dice.randrange(SHAPE_EVERY) else list(ways)[-1]
                data = bend(target.seeds, dice) if way == "bytes" else dice.randbytes(dice.randrange(SHAPE_BYTES))
                for timer, limit in TIMERS.items():
                    signal.setitimer(timer, limit)
                try:
                    ways[way](data)
                except Exception:  # any error is a finding
                    traceback.print_exc()
                    return tried, keep(target.name, way, data, keep_in)
                tried += 1
        return tried, None
    finally:
        target.end()


def keep(name: str, way: str, data: bytes, folder: Path) -> Path:
    """Write a failing input; its file's name has the target and the entry point."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.{way}.{hashlib.sha256(data).hexdigest()[:12]}"
    file.write_bytes(data)
    return file


def replay(file: Path) -> None:
    """Play a kept input again; raises its error."""
    name, way, _ = file.name.split(".")
    target = load(name)
    try:
        with limits():
            ways_in(target)[way](file.read_bytes())
    finally:
        target.end()


def run(name: str, seconds: float, seed: int) -> None:
    """Fuzz one target in this process; status 1 if it broke."""
    tried, broken = fuzz(load(name), seconds, seed, FAILURES)
    print(
        f"{name:8} {tried:9,} inputs, {tried / seconds:8,.0f} a second{', then one broke it' if broken else ''}",
        flush=True,
    )
    if broken:
        print(f"{name}: play it again with `python -m tests.fuzz --replay {broken}`", flush=True)
    sys.exit(broken is not None)
