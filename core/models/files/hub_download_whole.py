"""Downloads a whole hub model into a hub cache, where other programs find it. Runs in the download child.

Each file is written as `blobs/ETAG.incomplete`, which a later run extends; the library itself restarts a file after
a crash. When all files are there, the snapshot is laid out as the library does it: links to the verified blobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from huggingface_hub.file_download import repo_folder_name

from core.errors import TransferError
from core.models.files.block_writer import check_free
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.hub_download_messages import Fetched, FetchOrder
from core.models.files.hub_files import HubFile, model_of
from core.models.files.hub_reader import HubReader, Patience, in_threads
from core.models.files.model_settings import SMALL_FILES


class Wanted(NamedTuple):
    """A file to download and its place in the cache, which is named after its hash."""

    file: HubFile
    blob: Path

    @property
    def begun(self) -> Path:
        return self.blob.with_name(f"{self.blob.name}.incomplete")


def fetch(order: FetchOrder, report: Callable[[Fetched], None], pace: ByteRateLimit) -> None:
    """Download the missing files; the weights only of a model that can run here.

    Raises TransferError, UnsupportedModel, BadModel, and huggingface_hub's errors.
    """
    patience = Patience(report)
    model = model_of(order.repo, order.revision, patience)
    origin, found = model.origin, model.files
    blobs = Path(order.cache) / repo_folder_name(repo_id=order.repo, repo_type="model") / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    files = [Wanted(file, blobs / file.etag) for file in {file.etag: file for file in found}.values()]
    if {(wanted.file.etag, wanted.file.size) for wanted in files} != {(file.etag, file.size) for file in found}:
        raise TransferError("The hub gives two sizes for one hash.", "Choose another repository.")
    total = sum(wanted.file.size for wanted in files)
    reader = HubReader(origin, patience, pace)
    small = [Wanted(file, blobs / file.etag) for file in found if file.name in SMALL_FILES]
    for wanted in small:
        _bring(reader, wanted)
    model.check({wanted.file.name: wanted.blob.read_bytes() for wanted in small})
    check_free(blobs, total - _there(files))
    jobs = [partial(_bring, reader, wanted) for wanted in files]
    report(Fetched(done=_there(files), total=total))
    in_threads(jobs, patience.stop, lambda: report(Fetched(done=_there(files), total=total)))
    report(Fetched(done=total, total=total))
    for file in found:
        _link(blobs.parent / "snapshots" / origin.commit / file.name, blobs / file.etag)
    if order.revision != origin.commit:  # a branch may have moved since
        ref = blobs.parent / "refs" / order.revision
        ref.parent.mkdir(exist_ok=True)
        ref.write_text(origin.commit)


def _link(name: Path, blob: Path) -> None:
    """Make `name` a relative link to `blob`, as huggingface_hub does."""
    name.parent.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(blob, name.parent)
    if not (name.is_symlink() and os.readlink(name) == target):
        name.unlink(missing_ok=True)
        name.symlink_to(target)


def _bring(reader: HubReader, wanted: Wanted) -> None:
    """Download one file from where an earlier run stopped."""
    file, begun = wanted.file, wanted.begun
    if wanted.blob.exists():
        return
    if begun.exists() and begun.stat().st_size > file.size:
        begun.unlink()
    with begun.open("ab") as out:
        for piece in reader.read(file, out.tell(), file.size):
            out.write(piece)
    try:
        with begun.open("rb") as content:
            file.check(content)
    except TransferError:
        begun.unlink()
        raise
    begun.replace(wanted.blob)


def _there(files: Sequence[Wanted]) -> int:
    """Bytes on disk, of complete and partial files."""
    sizes = 0
    for wanted in files:
        for path in (wanted.blob, wanted.begun):
            try:
                sizes += min(path.stat().st_size, wanted.file.size)
                break
            except OSError:
                continue
    return sizes
