"""The installation of macluster on this Mac: whether it changed under a process, and how it is updated."""

from __future__ import annotations

import json
import os
import shlex
import sys
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from core.version import is_checkout, release_of, version_on_disk

SETTLED_S: Final = 60.0  # an installer needs a while to replace all files
# files that installers of isolated commands leave in the environment
_LEFT_BY: Final = {"uv-receipt.toml": "uv tool", "pipx_metadata.json": "pipx"}
_INSTALLERS: Final = ("pip", "uv")


class Installation(NamedTuple):
    """Code that a process runs if it starts now."""

    version: str  # of macluster
    mlx_lm: str = ""
    is_checkout: bool = False  # its commit may change while its files stay


class Look(NamedTuple):
    """An installation and since when it stands there, by the node's clock; None: nothing that could be started."""

    found: Installation | None
    since: float


def on_disk() -> Installation | None:
    """The installation now; None if macluster or its Python was removed."""
    try:
        found = Installation(version_on_disk(), version("mlx-lm"), is_checkout())
    except (OSError, PackageNotFoundError):
        return None
    return found if os.access(sys.executable, os.X_OK) else None


@cache
def running() -> Installation | None:
    """The installation that this process runs. Call it when the process starts."""
    return on_disk()


def outdated(ours: Installation | None, found: Installation | None) -> str:
    """A sentence if a process that runs `ours` should be started again; "" if not."""
    if found == ours or ours is None:
        return ""
    if found is None:
        return f"macluster {ours.version} was removed from this Mac: install it again, then `macluster restart`."
    if found.version != ours.version:
        return f"macluster {found.version} is installed, the node runs {ours.version}: `macluster restart`."
    return f"mlx-lm {found.mlx_lm} is installed, the node runs {ours.mlx_lm}: `macluster restart`."


def why_no_child(ours: Installation | None, found: Installation | None) -> str:
    """Why a process that runs `ours` can't start another one that works with it; "" if it can."""
    if ours and found and found.is_checkout:  # a commit doesn't change what lies there
        found = found._replace(version=release_of(found.version) + ours.version.removeprefix(release_of(ours.version)))
    return outdated(ours, found)


def looked(before: Look, found: Installation | None, now: float) -> Look:
    return before if found == before.found else Look(found, now)


def is_updated(look: Look, ours: Installation | None, now: float) -> bool:
    """Whether another installation has stood there for `SETTLED_S`, so that it can be started."""
    return look.found not in (None, ours) and now - look.since >= SETTLED_S


def installer_of(found: Distribution, prefix: Path) -> str:
    """The installer by its records; "" if unknown. `prefix` is the folder of the environment."""
    wrote = (found.read_text("INSTALLER") or "").strip()
    plain = wrote if wrote in _INSTALLERS else ""
    return next((name for file, name in _LEFT_BY.items() if (prefix / file).exists()), plain)


def update_commands(found: Distribution, prefix: Path, python: str) -> list[str]:
    """The commands that update this installation, as typed in a shell. `python`: its interpreter."""
    origin, by = json.loads(found.read_text("direct_url.json") or "{}"), installer_of(found, prefix)
    if by in _LEFT_BY.values():
        return [f"{by} upgrade macluster"]
    install = ["uv", "pip", "install", "--python", python] if by == "uv" else [python, "-m", "pip", "install"]
    if origin.get("dir_info", {}).get("editable"):
        folder = unquote(urlsplit(origin["url"]).path)
        return [shlex.join(["git", "-C", folder, "pull"]), shlex.join([*install, "--editable", folder])]
    source = f"macluster @ git+{origin['url']}" if "vcs_info" in origin else "macluster"
    return [shlex.join([*install, "--upgrade", source])]
