"""What pyproject.toml can't say: the commit and the README's links in what is built, and an sdist of equal bytes.

`REPOSITORY` is the address of the repository, where the links of the README lead on a package index.
"""

import gzip
import os
import re
import tarfile
import time
from pathlib import Path
from runpy import run_path
from shutil import copystat
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

COMMIT = run_path("core/version.py")["commit"]()
REPOSITORY = os.environ.get("REPOSITORY", "").rstrip("/")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^):]+)\)")  # to a file


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

    def make_archive(self, base_name: str, format: str, *_: Any, base_dir: Any = None, **__: Any) -> str:
        """Pack equal bytes for equal files: without their owners, at the time `SOURCE_DATE_EPOCH`."""
        made_at = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())

        def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = 0, 0, "", "", made_at
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            return entry

        path = f"{base_name}.tar.gz"
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=made_at) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=plain)
        return path


def readme() -> str:
    """The README for a package index, where links to files lead to the repository, or are plain words without one."""

    def absolute(link: re.Match[str]) -> str:
        mark, words, file = link.groups()
        if not REPOSITORY:
            return "" if mark else words
        return f"{mark}[{words}]({REPOSITORY}/{'raw' if mark else 'blob'}/{COMMIT or 'main'}/{file})"

    return LINK.sub(absolute, Path("README.md").read_text("utf-8"))


setup(
    cmdclass={"build_py": Build, "sdist": Source},
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={"Source": REPOSITORY, "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md"} if REPOSITORY else {},
)
