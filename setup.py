"""Writes the commit of a checkout into what is built from it; everything else stands in pyproject.toml."""

from pathlib import Path
from runpy import run_path
from shutil import copystat
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

COMMIT = run_path("core/version.py")["commit"]()


def write(folder: str) -> None:
    if COMMIT:
        file = Path(folder) / "core" / "commit"
        file.write_text(COMMIT)
        copystat("core/version.py", file)  # two builds are equal to the byte


class Build(build_py):
    """Writes it into a wheel."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write(self.build_lib)


class Source(sdist):
    """Writes it into an sdist."""

    def make_release_tree(self, base_dir: str, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        write(base_dir)


setup(cmdclass={"build_py": Build, "sdist": Source})
