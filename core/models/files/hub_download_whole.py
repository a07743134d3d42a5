"""A model of the hub as a whole, in a hub cache, where other programs find it, too. In the child that downloads.

Each file is written as `blobs/ETAG.incomplete`, which a later run extends: the library itself would begin a file anew
after every crash. When all are there, its `snapshot_download` finds them and lays the snapshot out.
"""

from __future__ import annotations

import glob
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final, NamedTuple

from huggingface_hub import snapshot_download
from huggingface_hub.file_download import repo_folder_name

from core.errors import TransferError
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.hub_download_messages import Fetched, FetchOrder
from core.models.files.hub_files import HubFile, files_of
from core.models.files.hub_reader import HubReader, Patience
from core.settings import GB

CONNECTIONS: Final = 4
FETCHED_EVERY_S: Final = 0.25
SPARE_BYTES: Final = GB


class Wanted(NamedTuple):
    """A file of a repository, and where it goes in the cache: its name there is its hash."""

    file: HubFile
    blob: Path

    @property
    def partial(self) -> Path:
        """What an earlier run has left of it."""
        return self.blob.with_name(f"{self.blob.name}.incomplete")


def fetch(order: FetchOrder, report: Callable[[Fetched], None], pace: ByteRateLimit) -> None:
    """Download what is not there yet. Raises TransferError, and what the hub's library raises."""
    patience = Patience()
    origin, found = files_of(order.repo, order.revision, patience)
    blobs = Path(order.cache) / repo_folder_name(repo_id=order.repo, repo_type="model") / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    files = [Wanted(file, blobs / file.etag) for file in found]
    total = sum(file.size for file in found)
    _check_room(Path(order.cache), total - _there(files))
    reader = HubReader(origin, patience, pace)
    ended = threading.Event()
    reporter = threading.Thread(target=_keep_reporting, args=(files, total, report, ended), daemon=True)
    reporter.start()
    pool = ThreadPoolExecutor(CONNECTIONS)
    try:
        for coming in as_completed([pool.submit(_bring, reader, file) for file in files]):
            coming.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        ended.set()
    reporter.join()
    report(Fetched(done=total, total=total))
    names = [glob.escape(file.name) for file in found]
    snapshot_download(order.repo, revision=origin.commit, cache_dir=order.cache, allow_patterns=names)
    if order.revision != origin.commit:  # what it means now may be another commit than the one that has come
        ref = blobs.parent / "refs" / order.revision
        ref.parent.mkdir(exist_ok=True)
        ref.write_text(origin.commit)


def _bring(reader: HubReader, wanted: Wanted) -> None:
    """One file, from where an earlier run stopped."""
    file, partial = wanted.file, wanted.partial
    if wanted.blob.exists():
        return
    if partial.exists() and partial.stat().st_size > file.size:
        partial.unlink()
    with partial.open("ab") as out:
        for piece in reader.read(file, out.tell(), file.size):
            out.write(piece)
    try:
        file.check(partial)
    except TransferError:
        partial.unlink()
        raise
    partial.replace(wanted.blob)


def _there(files: Sequence[Wanted]) -> int:
    """Bytes that are on disk, whole files and parts."""
    sizes = 0
    for wanted in files:
        for path in (wanted.blob, wanted.partial):
            try:
                sizes += min(path.stat().st_size, wanted.file.size)
                break
            except OSError:
                continue
    return sizes


def _check_room(cache: Path, missing: int) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if missing + SPARE_BYTES > free:
        what = f"{missing / GB:.1f} GB are missing, and {free / GB:.1f} GB are free on this disk."
        raise TransferError(what, "Make room on the disk, then try again.")


def _keep_reporting(
    files: Sequence[Wanted], total: int, report: Callable[[Fetched], None], ended: threading.Event
) -> None:
    while not ended.is_set():
        report(Fetched(done=_there(files), total=total))
        ended.wait(FETCHED_EVERY_S)
