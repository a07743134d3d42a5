"""The program's version: with the commit of a checkout or of a wheel."""

from __future__ import annotations

import shutil
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from core import version
from core.version import RELEASE

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def read(folder: Path) -> dict[str, Any]:
    """The module as it lies in another folder."""
    (folder / "core").mkdir(exist_ok=True)
    shutil.copy(str(version.__file__), folder / "core" / "version.py")
    return run_path(str(folder / "core" / "version.py"))


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    "files",
    [
        {".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"},
        {".git/HEAD": "ref: refs/heads/main\n", ".git/packed-refs": f"# pack-refs\n{COMMIT} refs/heads/main\n"},
        {".git/HEAD": f"{COMMIT}\n"},
        {
            ".git": "gitdir: main/.git/worktrees/one\n",
            "main/.git/worktrees/one/HEAD": "ref: refs/heads/one\n",
            "main/.git/worktrees/one/commondir": "../..\n",
            "main/.git/refs/heads/one": f"{COMMIT}\n",
        },
        {"core/commit": COMMIT[:7]},
    ],
    ids=["branch", "packed", "detached", "worktree", "wheel"],
)
def test_the_version_has_the_commit_without_asking_git(tmp_path: Path, files: dict[str, str]) -> None:
    written(tmp_path, files)
    found = read(tmp_path)
    assert found["program_version"]() == f"{RELEASE}+0123456"
