"""What the blocks of a file hold whose SHA-256 as a whole was compared with the hub's: the file `.compared` beside it.

The hub has one hash for a whole file, and a Mac that holds a part of it cannot make that. Where Macs have all of it
between them, one reads it once from first to last; that list of the hashes of its blocks is what every Mac then holds
its own blocks against. A line of JSON, which files, and behind it the hashes of all blocks of each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from core.errors import BadModel, TransferError
from core.models.files.block_map import MAX_HEAD_BYTES, MAX_RECORDS_BYTES, BlockMap, FileFacts, read_map
from core.models.files.checked_files import name_of
from core.models.files.hub_origin import read_origin
from core.trust.private_files import write_private

COMPARED_NAME: Final = ".compared"
HASH_BYTES: Final = 32

Compared = Mapping[str, bytes]


def read_compared(directory: Path, files: Mapping[str, FileFacts]) -> dict[str, bytes]:
    """The hashes of all blocks of those of `files` that were compared, one after the other; none where the file is
    damaged.
    """
    try:
        fd = os.open(directory / COMPARED_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            told = msgspec.json.decode(file.readline(MAX_HEAD_BYTES), type=dict[str, FileFacts])
            hashes = file.read(MAX_RECORDS_BYTES)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    found, at = {}, 0
    for name, facts in told.items():
        end = at + HASH_BYTES * len(facts.blocks)
        if files.get(name) == facts and end <= len(hashes):
            found[name] = hashes[at:end]
        at = end
    return found


def write_compared(directory: Path, files: Mapping[str, FileFacts], compared: Compared) -> None:
    """On disk when this returns. Raises TransferError."""
    head = msgspec.json.encode({name: files[name] for name in compared}) + b"\n"
    write_private(directory / COMPARED_NAME, head + b"".join(compared.values()), TransferError)


def uncompared(directory: Path) -> tuple[str, ...]:
    """The files of a model of the hub that is here in part, of which something is here, and that nobody has compared
    as a whole. Raises BadModel.
    """
    if (there := read_map(directory)) is None or read_origin(directory) is None:
        return ()
    known = read_compared(directory, there.files)
    return tuple(name for name, here in there.hashes.items() if here and name not in known)


def is_due(directory: Path) -> bool:
    """Whether something there cannot be loaded as it is: nobody compared it, or it is other than what was compared.
    Raises BadModel.
    """
    return bool(uncompared(directory) or false_files(directory))


def false_files(directory: Path) -> tuple[str, ...]:
    """The files of a model of the hub of which a block here is other than in the file that was compared. Raises
    BadModel.
    """
    if (there := read_map(directory)) is None or read_origin(directory) is None:
        return ()
    sound = without_false(there, read_compared(directory, there.files))
    return tuple(name for name, known in there.hashes.items() if len(sound.hashes[name]) < len(known))


def block_hash(compared: Compared, name: str, block: int) -> bytes:
    """What a block has to hold, b"" where nobody has compared its file."""
    return compared.get(name, b"")[block * HASH_BYTES :][:HASH_BYTES]


def without_false(there: BlockMap, compared: Compared) -> BlockMap:
    """The map without the blocks that are other than those of the files that were compared."""
    hashes = {
        name: {block: sha256 for block, sha256 in known.items() if sha256 == block_hash(compared, name, block)}
        if name in compared
        else known
        for name, known in there.hashes.items()
    }
    return BlockMap(there.files, hashes)


def check_compared(directory: Path) -> None:
    """Raises BadModel unless every block of a model of the hub that is here in part is that of a file that was compared
    with the hub's hash.
    """
    if names := uncompared(directory):
        what = f"{names[0]} of {name_of(directory)} was not compared with the hub's hash of all of it."
        raise BadModel(what, "Load it while the Macs are linked that hold the rest: then it is compared.")
    if false := false_files(directory):
        what = f"A part of {false[0]} in {name_of(directory)} is not what the hub's hash of all of it says."
        raise BadModel(what, "Load it again: what is false is fetched anew.")
