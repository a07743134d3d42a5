"""Where models lie that come to this Mac's disk: begun ones aside, then each in a directory of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Set
from pathlib import Path
from typing import Final

from core.errors import BadModel, TransferError, UnsupportedModel
from core.models.files.catalog import read_model, short_name
from core.trust.private_files import private_folder

PARTIAL: Final = ".partial"
MAX_BEGUN: Final = 16  # that nobody has ended: another Mac may begin one, too
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")


def begun_place(folder: Path, name: str) -> Path:
    """A folder aside for one that comes. Raises TransferError where too many others lie there begun."""
    begun, place = folder / PARTIAL, folder / PARTIAL / name
    if begun.is_dir() and not place.exists() and len(list(begun.iterdir())) >= MAX_BEGUN:
        cure = f"Finish one of them, or delete what you do not want in {begun}."
        raise TransferError(f"{MAX_BEGUN} models are copied to that Mac only in part.", cure)
    for each in (begun, place):
        private_folder(each, TransferError)
    return place


def free_place(folder: Path, name: str, fingerprint: str, taken: Set[str]) -> Path:
    """Never one that would make it answer to the name of another model of this Mac."""
    name = _UNFIT.sub("-", short_name(name)).strip(".-")[:80] or "model"
    place = folder / name
    return folder / f"{name}-{fingerprint[:8]}" if name in taken or place.exists() else place


def check_usable(begun: Path, whose: str, cure: str) -> None:
    """What came stays only where it can be read. Raises BadModel that says whose it is and what to do."""
    try:
        read_model(begun)
    except BadModel as error:
        shutil.rmtree(begun)
        raise BadModel(f"{whose} cannot be used: {error.what}", cure) from error
    except UnsupportedModel:
        pass  # the list of models says so: another mlx-lm may know it
