"""Versions of macluster: the program's, that of what Macs say to each other and that of what is said on this Mac's
socket, and the hash of how a stage computes.

Raise the newest number of WIRE when Macs of the version before can't understand a message, of LOCAL when commands of
the version before can't understand a request's reply, and COMPUTE_REVISION when a stage computes other numbers.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

RELEASE: Final = "0.1.0"
WIRE: Final = (1, 1)  # oldest and newest version of the messages between Macs
COMPUTE_REVISION: Final = 1
CAPS: Final[frozenset[str]] = frozenset()  # what this version can do that a plan may need and WIRE doesn't say
LOCAL: Final = (1, 1)  # oldest and newest version of the requests, replies and events on this Mac's socket
HEADER: Final = "X-Macluster-Version"  # of every request and reply there: "0.1.0+abc1234; local=1"

_HERE: Final = Path(__file__).resolve()
_WRITTEN: Final = re.compile(r'^RELEASE: Final = "(.+)"$', re.MULTILINE)


@cache
def program_version() -> str:
    """The version of this process, such as "0.1.0+abc1234", or "0.1.0" if the commit is unknown.

    Call it when a process starts: an update changes the files.
    """
    return _with(RELEASE, commit())


def version_on_disk() -> str:
    """The version that a process would have that starts now. Raises OSError if macluster was removed."""
    written = _WRITTEN.search(_HERE.read_text())
    return _with(written[1] if written else RELEASE, commit())


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
    parts += [
        file.name.encode() + b"\0" + file.read_bytes()
        for file in sorted((_HERE.parent / "models" / "slicing").glob("*.py"))
    ]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def release_of(version: str) -> str:
    return version.partition("+")[0]


def local_header() -> str:
    return f"{program_version()}; local={LOCAL[1]}"


def is_too_old(header: str) -> bool:
    """Whether its sender knows nothing of what this version says on this Mac's socket."""
    newest = header.rpartition("; local=")[2]
    return newest.isdecimal() and int(newest) < LOCAL[0]


def difference(node: str, command: str) -> str:
    """A sentence for users of a command whose version isn't the node's; "" if they are equal, or one is unknown.
    Takes versions, or the headers that name them.
    """
    node, command = node.partition(";")[0], command.partition(";")[0]
    if node == command or not (node and command):
        return ""
    cure = "`macluster restart`" if _number(node) <= _number(command) else "start the newer macluster"
    return f"The node runs {node}, this is {command}: {cure}."


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


def _number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release_of(version))]
