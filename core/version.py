"""Versions of macluster: the program's, that of what Macs say to each other, and the hash of how a stage computes.

Raise the newest number of WIRE when Macs of the version before can't understand a message, and COMPUTE_REVISION when a
stage computes other numbers than before.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

RELEASE: Final = "0.1.0"
WIRE: Final = (1, 1)  # oldest and newest version of the messages between Macs
COMPUTE_REVISION: Final = 1
CAPS: Final[frozenset[str]] = frozenset()  # what this version can do that a plan may need and WIRE doesn't say

_SLICING: Final = Path(__file__).parent / "models" / "slicing"


def package_version(package: str) -> str:
    """The version of an installed package, "" without one."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def compute_hash() -> str:
    """16 hex digits, the same in processes that compute a stage alike: a ring needs one hash. MLX's version isn't part
    of it: its versions round differently, as chips do. Call it when a process starts: an update changes the files.
    """
    parts = [str(COMPUTE_REVISION).encode(), package_version("mlx-lm").encode()]
    parts += [file.name.encode() + b"\0" + file.read_bytes() for file in sorted(_SLICING.glob("*.py"))]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]
