"""Checks for a model copied to this disk: file names, target folder, free space, and the arrived files.

An unfinished copy is in PARTIAL; a finished one gets a folder of its own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from core.errors import BadModel, ModelError, ModelMismatch, TransferError, UnsupportedModel
from core.mac import time_machine
from core.models.files.block_map import BlockMap, FileFacts, read_map, whole_parts
from core.models.files.block_writer import check_free
from core.models.files.catalog import ModelEntry, read_model, short_name
from core.models.files.checked_files import MAX_JSON_BYTES, name_of
from core.models.files.model_folder import read_folder
from core.models.files.parts import Part
from core.models.files.safetensors import DECIDING_FILES
from core.node.disks.messages import HeldModel
from core.settings import GB
from core.trust.private_files import private_folder

PARTIAL: Final = ".partial"
MAX_BEGUN: Final = 16  # unfinished copies, because other Macs may start them too
MAX_WEIGHTS_BYTES: Final = 1000 * GB
_WEIGHTS: Final = re.compile(r"model[A-Za-z0-9_-]{0,100}(\.[A-Za-z0-9_-]{1,50})?\.safetensors")
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")

CopiesHere = Mapping[Path, BlockMap | None]  # folders with a model on this disk, and their maps; None: complete


def check_names(files: Mapping[str, FileFacts]) -> None:
    """Raise TransferError unless all files may be written for another Mac: plain names of file types of a model, no
    path, no code, plausible sizes.
    """
    for name, facts in files.items():
        is_weights = _WEIGHTS.fullmatch(name) is not None
        if not (is_weights or name in DECIDING_FILES):
            raise TransferError(f"The other Mac offers the file {name!r:.80}, which does not belong to a model.")
        if facts.size > (MAX_WEIGHTS_BYTES if is_weights else MAX_JSON_BYTES):
            raise TransferError(f"The other Mac claims that {name} has {facts.size} bytes.")
    if not any(_WEIGHTS.fullmatch(name) for name in files):
        raise TransferError("The other Mac offers a model without weights.")


def wanted_parts(files: Mapping[str, FileFacts], parts: Sequence[Part]) -> tuple[Part, ...]:
    """All settings, and `parts` of the weights, or all weights without `parts`. Raises TransferError for a part outside
    the files.
    """
    for part in parts:
        if part.file not in files or not part.begin <= part.end <= files[part.file].size:
            raise TransferError(f"The part {part.begin}–{part.end} of {part.file!r:.80} is not in the model.")
    settings = {name: facts for name, facts in files.items() if not _WEIGHTS.fullmatch(name)}
    return (*whole_parts(settings), *parts) if parts else whole_parts(files)


def copies_here(entries: Sequence[ModelEntry], fingerprint: str) -> CopiesHere:
    return {Path(each.path): read_map(Path(each.path)) for each in entries if each.fingerprint == fingerprint}


def is_here(here: CopiesHere, parts: Sequence[Part]) -> bool:
    """Whether `parts` of a model, or all of it without `parts`, are on this disk."""
    return any(there is None or not there.lacking(wanted_parts(there.files, parts)) for there in here.values())


def folder_to_fill(folder: Path, here: CopiesHere, fingerprint: str, files: Mapping[str, FileFacts]) -> Path:
    """Folder to write a model to: that of its partial copy, else a new one in PARTIAL. Raises ModelMismatch,
    TransferError.
    """
    for place, there in here.items():
        if place.parent == folder and there:
            check_same(place, there, files, "that Mac's", "copy")
            return place
    begun, place = folder / PARTIAL, folder / PARTIAL / fingerprint
    if begun.is_dir() and not place.exists() and len(list(begun.iterdir())) >= MAX_BEGUN:
        cure = f"Finish one of them, or delete what you do not want in {begun}."
        raise TransferError(f"{MAX_BEGUN} models are copied to that Mac only in part.", cure)
    for each in (begun, place):
        private_folder(each, TransferError)
    time_machine.exclude(folder)
    return place


def check_same(place: Path, there: BlockMap, files: Mapping[str, FileFacts], whose: str, verb: str) -> None:
    """Raise ModelMismatch if the partial copy at `place` is of other files."""
    if there.files != files:
        what = f"{name_of(place)} on this Mac is part of a different version than {whose}."
        raise ModelMismatch(what, f"Delete {place}, then {verb} again.")


def finished_folder(folder: Path, name: str, fingerprint: str, entries: Sequence[ModelEntry]) -> Path:
    """Folder of a finished model; avoids names of other models on this Mac."""
    name = _NOT_IN_A_NAME.sub("-", short_name(name)).strip(".-")[:80] or "model"
    is_taken = name in {short_name(entry.name) for entry in entries} or (folder / name).exists()
    return folder / (f"{name}-{fingerprint[:8]}" if is_taken else name)


def check_room(folder: Path, files: Mapping[str, FileFacts], wanted: Sequence[Part]) -> None:
    """Raise TransferError if the missing parts don't fit on the disk of `folder`."""
    there = None
    with suppress(BadModel):
        there = read_map(folder)
    if there is None or there.files != files:
        there = BlockMap(files, {})
    check_free(folder, sum(part.nbytes for part in there.lacking(wanted)))


def check_arrived(folder: Path, model: HeldModel) -> None:
    """Raise ModelMismatch or BadModel unless it is the wanted, usable model; deletes it then."""
    check_usable(folder, "The copied model", "Check the files on the other Mac.")
    try:
        found = read_folder(folder).fingerprint
    except ModelError:
        found = ""
    if found != model.fingerprint:
        shutil.rmtree(folder)
        raise ModelMismatch("A different model than requested arrived.", "Check the files on the other Mac.")


def check_usable(folder: Path, whose: str, cure: str) -> None:
    """Raise BadModel unless the model can be read; deletes it then."""
    try:
        read_model(folder)
    except BadModel as error:
        shutil.rmtree(folder)
        raise BadModel(f"{whose} cannot be used: {error.what}", cure) from error
    except UnsupportedModel:
        pass  # shown in the list of models; a newer mlx-lm may support it
