"""An installed wheel: in its own environment, without this repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path


def installed(wheel: Path, folder: Path) -> Path:
    """Install that wheel and return its `macluster`. Its dependencies are those of the environment that runs this."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # without --ignore-installed, the copy of this environment would count as installed
    _pip(folder, "--no-deps", "--no-index", "--ignore-installed", str(wheel))
    return folder / "bin" / "macluster"


def add_extra(wheel: Path, folder: Path, extra: str) -> None:
    """Install an extra of the wheel `installed` there, unless its packages exist. Needs a network."""
    _pip(folder, "--no-compile", f"macluster[{extra}] @ {wheel.as_uri()}")


def _pip(folder: Path, *words: str) -> None:
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, *words], check=True)


def of_nobody(folder: str) -> Mapping[str, str]:
    """Environment variables without this Python environment, with the state in `folder`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return environment | {"MACLUSTER_HOME": f"{folder}/home"}
