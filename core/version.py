"""Versions of macluster: the program's, and the hash of how it computes.

Raise COMPUTE_REVISION when a stage computes other numbers than before.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

RELEASE: Final = "0.1.0"
COMPUTE_REVISION: Final = 1

_HERE: Final = Path(__file__).resolve()


@cache
def program_version() -> str:
    """The version of this process, such as "0.1.0+abc1234", or "0.1.0" if the commit is unknown.

    Call it when a process starts: an update changes the files.
    """
    return _with(RELEASE, commit())


@cache
def compute_hash() -> str:
    """16 hex digits, the same in processes that compute a stage alike: a ring needs one hash. MLX's version isn't part
    of it: its versions round differently, as chips do. Call it when a process starts: an update changes the files.
    """
    parts = [str(COMPUTE_REVISION).encode(), package_version("mlx-lm").encode()]
    slicing = sorted(_HERE.parent.glob("models/slicing/*.py"))
    parts += [file.name.encode() + b"\0" + file.read_bytes() for file in slicing]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def package_version(package: str) -> str:
    """The version of an installed package, "" without one."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def is_checkout() -> bool:
    return (_HERE.parents[1] / ".git").exists()


def commit() -> str:
    """The commit of these files: of a checkout, or the one that a wheel's build wrote; "" if unknown."""
    try:
        return _checked_out(_HERE.parents[1])[:7] if is_checkout() else _HERE.with_name("commit").read_text().strip()
    except OSError:
        return ""


def _checked_out(folder: Path) -> str:
    git = folder / ".git"
    if git.is_file():  # of a second worktree
        git = folder / git.read_text().removeprefix("gitdir:").strip()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    ref, common = head.removeprefix("ref: "), git / "commondir"
    shared = git / common.read_text().strip() if common.exists() else git
    if (shared / ref).exists():
        return (shared / ref).read_text()
    packed = (shared / "packed-refs").read_text().splitlines()
    return next((line for line in packed if line.endswith(f" {ref}")), "")


def _with(release: str, commit: str) -> str:
    return f"{release}+{commit}" if commit else release
