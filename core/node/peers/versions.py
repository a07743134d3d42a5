"""Other versions of macluster on other Macs: what they can't do together, and the words for it."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from core.errors import Problem
from core.mac.installation import installer_of
from core.node.peers.messages import Greeting
from core.version import CAPS, WIRE, compute_hash, package_version, program_version

# by the installer of an isolated command; only the Mac itself knows the folder or environment of another one
UPDATES: Final = {"uv tool": "uv tool upgrade macluster", "pipx": "pipx upgrade macluster"}


def own_greeting() -> Greeting:
    """Call it when the node starts: an update changes the files, and this process keeps the old code."""
    return Greeting(
        version=program_version(),
        wire=WIRE,
        compute=compute_hash(),
        mlx_lm=package_version("mlx-lm"),
        mlx=package_version("mlx"),
        python=platform.python_version(),
        caps=tuple(sorted(CAPS)),
        installed_by=_installer(),
    )


def _installer() -> str:
    try:
        return installer_of(distribution("macluster"), Path(sys.prefix))
    except PackageNotFoundError:  # only files, not installed
        return ""


def wire_between(one: Greeting, other: Greeting) -> int | None:
    """The version of messages that both know; None without one."""
    newest = min(one.wire[1], other.wire[1])
    return newest if newest >= max(one.wire[0], other.wire[0]) else None


def why_apart(name: str, theirs: Greeting, ours: Greeting, *, can_talk: bool = True) -> Problem | None:
    """Why the Mac called `name` can't hold layers of this Mac's plans, and the line to type; None if it can."""
    if can_talk and wire_between(theirs, ours) and theirs.compute == ours.compute:
        return None
    is_older = _age(theirs) <= _age(ours)
    where, update = (name, theirs.installed_by) if is_older else ("this Mac", ours.installed_by)
    what = f"{name} has {_version(theirs, ours)}, this Mac {_version(ours, theirs)}: they can't share a model."
    known = UPDATES.get(update)
    lines = f"`{known}`, then `macluster restart`" if known else "type the lines that `macluster update` prints"
    return Problem(kind="PlanError", what=what, fix=f"On {where}: {lines}.")


def _age(mac: Greeting) -> tuple[object, ...]:
    return mac.wire[1], _numbers(mac.version), _numbers(mac.mlx_lm)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number[:9]) for number in re.findall(r"\d+", version.partition("+")[0]))


def _version(mac: Greeting, other: Greeting) -> str:
    """The Mac's versions in words, with as much as tells it from `other`."""
    words = f"macluster {mac.version or 'of an unknown version'}"
    if mac.mlx_lm != other.mlx_lm:
        return f"{words} with mlx-lm {mac.mlx_lm or 'of an unknown version'}"
    return words if mac.version != other.version else f"{words} (code {mac.compute[:7] or 'unknown'})"
