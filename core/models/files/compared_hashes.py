"""The file `.compared` in a model folder: block hashes of files whose full SHA-256 matched the hub's.

The hub has one hash per file, which a Mac with only part of the file cannot check. Where the linked Macs hold the whole
file between them, one of them reads it from first to last; the resulting list of block hashes is what every Mac checks
its own blocks against. Format: a line of JSON with the files, then the hashes of all blocks of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from core.errors import BadModel, TransferError
from core.models.files import block_map
from core.models.files.checked_files import name_of
from core.models.files.hub_origin import read_origin
from core.settings import Home
from core.trust.file_formats import check_not_newer
from core.trust.private_files import write_private

COMPARED_NAME: Final = ".compared"

Compared = Mapping[str, bytes]


class Doubtful(NamedTuple):
    """Files with blocks on this disk that can't be loaded yet."""

    uncompared: tuple[str, ...] = ()
    false: tuple[str, ...] = ()  # with a block that differs from the compared file


def read_compared(directory: Path, files: Mapping[str, block_map.FileFacts]) -> dict[str, bytes]:
    """Block hashes of each compared file in a row; empty if `.compared` is damaged. Raises BadModel if it is newer."""
    try:
        _, told, hashes = block_map.read_list(directory, COMPARED_NAME)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    found, at = {}, 0
    for name, facts in told.items():
        end = at + block_map.HASH_BYTES * len(facts.blocks)
        if files.get(name) == facts and end <= len(hashes):
            found[name] = hashes[at:end]
        at = end
    return found


def write_compared(directory: Path, files: Mapping[str, block_map.FileFacts], compared: Compared) -> None:
    """Replace `.compared`, synced to disk. Raises TransferError."""
    place = directory / COMPARED_NAME
    check_not_newer(place, Home.models.format, TransferError)
    head = block_map.head_of({name: files[name] for name in compared})
    write_private(place, head + b"".join(compared.values()), TransferError)


def doubtful(directory: Path) -> Doubtful:
    """The doubtful files of a partial hub model. Raises BadModel."""
    if (there := block_map.read_map(directory)) is None or read_origin(directory) is None:
        return Doubtful()
    known = read_compared(directory, there.files)
    sound = without_false(there, known).hashes
    return Doubtful(
        tuple(name for name, here in there.hashes.items() if here and name not in known),
        tuple(name for name, here in there.hashes.items() if len(sound[name]) < len(here)),
    )


def without_false(there: block_map.BlockMap, compared: Compared) -> block_map.BlockMap:
    """The map without blocks that differ from the compared files."""
    hashes = {
        name: {block: sha256 for block, sha256 in known.items() if sha256 == block_map.hash_at(compared[name], block)}
        if name in compared
        else known
        for name, known in there.hashes.items()
    }
    return block_map.BlockMap(there.files, hashes)


def check_compared(directory: Path) -> None:
    """Raise BadModel unless all blocks of a partial hub model match files compared with the hub's hash."""
    names, false = doubtful(directory)
    if names:
        what = f"{names[0]} of {name_of(directory)} was not compared with the hub's hash of the whole file."
        raise BadModel(what, "Load it while the Macs with the rest of it are linked; then it is compared.")
    if false:
        what = f"A part of {false[0]} in {name_of(directory)} does not match the hub's hash of the whole file."
        raise BadModel(what, "Load it again: the wrong part is downloaded again.")
