"""Reads single files of a model folder after checking them.

A model folder is foreign input: every file must be a regular file inside the folder, and JSON values are counted before
they are parsed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from core.errors import BadModel
from core.models.files.hub_origin import read_origin
from core.settings import MIB
from core.text import clean_text

MAX_JSON_BYTES: Final = 64 * MIB
# each value becomes a Python object of about 100 bytes; tokenizers with 260,000 words and merges have 2 million
MAX_JSON_VALUES: Final = 4_000_000
MAX_CONFIG_VALUES: Final = 250_000  # of the other files, so that reading one holds no heartbeat
_LONG: Final = ("tokenizer.json", "vocab.json", "model.safetensors.index.json")
_REGULAR: Final = "Put the file itself there."
_FETCHED: Final = (".blocks", ".fetched")  # maps of what macluster downloaded or copied
OTHER_VERSION: Final = "Choose a version of it in safetensors for MLX, for example from mlx-community."
UNREADABLE: Final = "Check that this account may read the file, and that its disk is connected."
POINTER: Final = b"version https://git-lfs"
# raised by Python for malformed values
_NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@contextmanager
def judged(directory: Path) -> Iterator[None]:
    """Turn errors raised while reading a model folder into BadModel."""
    try:
        yield
    except OSError as error:
        raise BadModel(f"{name_of(directory)} cannot be read: {error.strerror}.", UNREADABLE) from error
    except _NONSENSE as error:
        what = f"{name_of(directory)} cannot be used: its files are inconsistent ({type(error).__name__})."
        raise BadModel(what) from error


def inside(directory: Path, name: str) -> Path:
    """Path of the file `name` in a model folder, resolved. Raises BadModel if it is, or links to, a file outside.

    In a folder that a person made, a link may lead to a file of the same name on another disk, or into a hub cache.
    In one that a program downloaded or copied, only into the sibling folder `blobs` of a hub cache.
    """
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name or "\0" in name:
        what = f"{name_of(directory)} names the file {name!r}, which lies outside the model's directory."
        raise BadModel(what, OTHER_VERSION)
    try:
        real, home = (directory / name).resolve(), directory.resolve()
        plain = real.is_file() or not real.exists()
        is_fetched = home.parent.name == "snapshots" or any((home / made).exists() for made in _FETCHED)
        blobs = (home.parent.parent / "blobs").resolve() if home.parent.name == "snapshots" else home
    except (OSError, RuntimeError, ValueError) as error:
        what = f"{name!r:.200} in {name_of(directory)} cannot be followed: {error!s:.200}."
        raise BadModel(what, _REGULAR) from error
    is_cached = real.parent.name == "blobs" and real.parent.parent.name.startswith("models--")
    is_chosen = not is_fetched and (is_cached or real.name == PurePosixPath(name).name)
    if not (is_chosen or real.is_relative_to(home) or real.is_relative_to(blobs)):
        fix = "Put the file itself there, or let the link lead to a file of the same name."
        raise BadModel(f"{name} in {name_of(directory)} is a link that leads out of the model's directory.", fix)
    if not plain:
        raise BadModel(f"{name} in {name_of(directory)} is not a regular file.", _REGULAR)
    return real


def name_of(directory: Path) -> str:
    """Name of a model: the full repository id where it is known, else the folder's name."""
    directory = Path(os.path.realpath(directory))
    if origin := read_origin(directory):
        return origin.repo
    repository = (directory.parent.parent if directory.parent.name == "snapshots" else directory).name
    if repository.startswith("models--"):
        return " ".join(clean_text("/".join(repository.split("--")[1:])).split()) or "model"
    return " ".join(clean_text(directory.name).split()) or "model"


def check_files(directory: Path) -> None:
    """Raise BadModel unless every file of a model folder is regular and inside it. Libraries open any file they find: a
    pipe would block the reader forever, a link could lead to another user's file.
    """
    for folder in (directory, directory / "additional_chat_templates"):
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.is_symlink():
                inside(directory, str(file.relative_to(directory)))
            elif not (file.is_file() or file.is_dir()):
                raise BadModel(f"{file.name} in {name_of(directory)} is not a regular file.", _REGULAR)


def read_bytes(directory: Path, name: str) -> bytes | None:
    """Content of the file `name`; None if it doesn't exist. Raises BadModel if it is too large."""
    file = inside(directory, name)
    if not file.is_file():
        return None
    if file.stat().st_size > MAX_JSON_BYTES:
        what = f"{name} in {name_of(directory)} is larger than {MAX_JSON_BYTES // MIB} MiB."
        raise BadModel(what, OTHER_VERSION)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadModel(f"{name} in {name_of(directory)} cannot be read: {error}.", UNREADABLE) from error
    fail_if_pointer(data, name)
    if name.endswith(".json"):
        most = MAX_JSON_VALUES if name in _LONG else MAX_CONFIG_VALUES
        check_values(data, f"{name} in {name_of(directory)}", most)
    return data


def fail_if_pointer(begin: bytes, name: str) -> None:
    """Raise BadModel if a file begins like a pointer of git-lfs, which a clone without git-lfs has in its place."""
    if begin.startswith(POINTER):
        fix = "Run `git lfs pull` in the folder, or download the model again with macluster."
        raise BadModel(f"{name} is only a pointer of git-lfs to the real file.", fix)


def check_values(text: bytes, what: str, most: int = MAX_JSON_VALUES) -> None:
    """Raise BadModel for JSON with too many values, which would fill the memory when parsed."""
    if sum(text.count(mark) for mark in b",[{") > most:
        raise BadModel(f"{what} has more than {most:,} values.", OTHER_VERSION)


def read_json(directory: Path, name: str) -> dict[str, Any] | None:
    """JSON object in the file `name`; None if it doesn't exist. Raises BadModel."""
    data = read_bytes(directory, name)
    return None if data is None else parse_json(data, f"{name} in {name_of(directory)}")


def parse_json(data: bytes, what: str) -> dict[str, Any]:
    """JSON object in `data`. Raises BadModel, naming the file as `what`."""
    try:
        value = json.loads(data, parse_int=whole)
    except (ValueError, RecursionError) as error:
        raise BadModel(f"{what} is not readable JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadModel(f"{what} does not hold a JSON object.")
    return value


def whole(digits: str) -> float:
    """Parse a JSON integer; one of more than 64 bits becomes a float."""
    return int(digits) if len(digits) < 20 else float(digits)
