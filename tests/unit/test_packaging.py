"""Builds of macluster, and the command that starts from them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# starts macluster, then a process as macluster does
STARTS = """
import macluster, subprocess, sys
sys.argv = ["macluster", "--version"]
try:
    macluster.main()
finally:
    subprocess.run([sys.executable, "-m", "core.node", "--help"], check=True)
"""


def test_other_packages_of_the_same_names_are_not_taken_for_ours(tmp_path: Path) -> None:
    for name in ("core", "tui"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('foreign')\n")
    for words in (("-c", STARTS), ("-m", "macluster", "--version")):
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stdout[:10]) == (0, "macluster "), ran.stderr


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that setup.py gives to setuptools."""
    setuptools = pytest.importorskip("setuptools")
    found: dict[str, Any] = {}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", lambda **more: found.update(more))
    run_path("setup.py")
    return found


def test_the_page_on_a_package_index_has_no_broken_link(monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]) -> None:
    bare = told["long_description"]
    monkeypatch.setenv("REPOSITORY", "https://example.org/m/")
    run_path("setup.py")
    linked = told["long_description"]
    for page in (bare, linked):
        assert [link for link in re.findall(r"\]\(([^)]+)\)", page) if not link.startswith("https://")] == []
    assert "its card says" in bare
    assert re.search(r"\[card\]\(https://example.org/m/blob/\w+/core/demo/MODEL_CARD\.md\)", linked)
    assert told["project_urls"]["Source"] == "https://example.org/m"


def test_an_sdist_is_the_same_to_the_byte(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: dict[str, Any]
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.chdir(tmp_path)
    packs, made = told["cmdclass"]["sdist"].make_archive, set()
    for number in range(2):
        (tmp_path / "m-1").mkdir(exist_ok=True)
        for name in ("b", "a"):
            (tmp_path / "m-1" / name).write_text(name)
            os.utime(tmp_path / "m-1" / name, (number, number))
        made.add(Path(packs(None, str(tmp_path / str(number)), "gztar", base_dir="m-1")).read_bytes())
    assert len(made) == 1
