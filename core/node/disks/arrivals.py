"""What may come to this disk, where it is written, whether there is room, and whether it is what was asked for."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from core.errors import BadModel, ModelError, ModelMismatch, TransferError
from core.models.files.block_map import BlockMap, FileFacts, read_map, whole_parts
from core.models.files.catalog import ModelEntry, fingerprint
from core.models.files.folder import MAX_JSON_BYTES
from core.models.files.parts import Part
from core.models.files.safetensors import DECIDING_FILES
from core.node.disks.messages import HeldModel
from core.node.disks.places import begun_place, check_usable
from core.settings import GB

SPARE_BYTES: Final = GB
MAX_WEIGHTS: Final = 1000 * GB
_WEIGHTS: Final = re.compile(r"model[A-Za-z0-9_-]{0,100}(\.[A-Za-z0-9_-]{1,50})?\.safetensors")


def check_names(files: Mapping[str, FileFacts]) -> None:
    """What may be written on this Mac for another one: plain names of the kinds of files that make up a model, no
    path, nothing that can run code, no size that no model has. Raises TransferError.
    """
    for name, facts in files.items():
        is_weights = _WEIGHTS.fullmatch(name) is not None
        if not (is_weights or name in DECIDING_FILES):
            raise TransferError(f"The other Mac offers the file {name!r:.80}, which does not belong to a model.")
        if facts.size > (MAX_WEIGHTS if is_weights else MAX_JSON_BYTES):
            raise TransferError(f"The other Mac says that {name} has {facts.size} bytes.")
    if not any(_WEIGHTS.fullmatch(name) for name in files):
        raise TransferError("The other Mac offers a model without weights.")


def wanted_parts(files: Mapping[str, FileFacts], parts: Sequence[Part]) -> tuple[Part, ...]:
    """All settings, and `parts`, or all weights where there are none. Raises TransferError for what is in no file."""
    for part in parts:
        if part.file not in files or not part.begin <= part.end <= files[part.file].size:
            raise TransferError(f"The part {part.begin}–{part.end} of {part.file!r:.80} is not in the model.")
    settings = {name: facts for name, facts in files.items() if not _WEIGHTS.fullmatch(name)}
    return (*whole_parts(settings), *parts) if parts else whole_parts(files)


def is_here(entries: Sequence[ModelEntry], model: HeldModel, parts: Sequence[Part]) -> bool:
    """Whether `parts` of a model, or all of it where there are none, lie on this disk among the models."""
    for entry in entries:
        if entry.fingerprint == model.fingerprint:
            there = read_map(Path(entry.path))
            if there is None or not there.lacking(wanted_parts(there.files, parts)):
                return True
    return False


def files_here(entries: Sequence[ModelEntry], model: HeldModel) -> Mapping[str, FileFacts] | None:
    """The files of a model of which a part is here."""
    maps = (read_map(Path(entry.path)) for entry in entries if entry.fingerprint == model.fingerprint)
    return next((there.files for there in maps if there), None)


def where_begun(folder: Path, entries: Sequence[ModelEntry], model: HeldModel, files: Mapping[str, FileFacts]) -> Path:
    """Where to write: where a part of the model lies already, else a folder of its own. Raises ModelMismatch,
    TransferError.
    """
    for entry in entries:
        place = Path(entry.path)
        if entry.fingerprint == model.fingerprint and place.parent == folder and (there := read_map(place)):
            if there.files != files:
                what = f"{entry.name} on this Mac is a part of other files than those of that Mac."
                raise ModelMismatch(what, f"Delete {place}, then copy again.")
            return place
    return begun_place(folder, model.fingerprint)


def check_room(begun: Path, files: Mapping[str, FileFacts], wanted: Sequence[Part]) -> None:
    """Raises TransferError where there is no room for what lacks."""
    try:
        there = read_map(begun)
    except BadModel:
        there = None
    known = there if there and there.files == files else BlockMap(files, {})
    check_free(begun, sum(part.nbytes for part in known.lacking(wanted)), SPARE_BYTES)


def check_free(begun: Path, missing: int, spare: int) -> None:
    """Raises TransferError where the disk would not have `spare` bytes left, or lost them to others meanwhile."""
    free = shutil.disk_usage(begun).free
    if missing + spare > free:
        what = (
            f"{missing / GB:.1f} GB are missing, and {free / GB:.1f} GB are free on this disk, "
            f"of which {spare / GB:.1f} GB stay free: {(missing + spare - free) / GB:.1f} GB too little."
        )
        raise TransferError(what, "Make room on the disk, then try again: what is there is kept.")


def check_arrived(begun: Path, model: HeldModel) -> None:
    """Look whether it is the model that was asked for, and can be used."""
    try:
        found = fingerprint(begun)
    except ModelError:
        found = ""
    if found != model.fingerprint:
        shutil.rmtree(begun)
        raise ModelMismatch("Another model arrived than was asked for.", "Check the files on the other Mac.")
    check_usable(begun, "What arrived", "Check the files on the other Mac.")
