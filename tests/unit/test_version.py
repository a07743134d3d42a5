"""The program's version: with the commit of a checkout or of a wheel, and in words where two differ."""

from __future__ import annotations

import shutil
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from core import version
from core.version import RELEASE, difference

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
    assert found["program_version"]() == found["version_on_disk"]() == f"{RELEASE}+0123456"


def test_without_a_commit_it_is_the_release_and_the_disk_is_read_again(tmp_path: Path) -> None:
    found = read(tmp_path)
    file = tmp_path / "core" / "version.py"
    file.write_text(file.read_text().replace(f'RELEASE: Final = "{RELEASE}"', 'RELEASE: Final = "9.9.9"'))
    assert (found["program_version"](), found["version_on_disk"]()) == (RELEASE, "9.9.9")


@pytest.mark.parametrize(
    ("node", "command", "said"),
    [
        ("0.1.0", "0.2.0", "The node runs 0.1.0, this is 0.2.0: `macluster restart`."),
        ("0.9.0", "0.10.0", "The node runs 0.9.0, this is 0.10.0: `macluster restart`."),
        ("0.1.0+a", "0.1.0+b", "The node runs 0.1.0+a, this is 0.1.0+b: `macluster restart`."),
        ("0.2.0", "0.1.0", "The node runs 0.2.0, this is 0.1.0: start the newer macluster."),
        ("0.1.0+a", "0.1.0+a", ""),
        ("", "0.1.0", ""),
    ],
)
def test_two_versions_are_named_with_what_to_type(node: str, command: str, said: str) -> None:
    assert difference(node, command) == said
