"""`python -m core.models.files.fetch`: downloads a model into a hub cache, and goes on where it was interrupted.

Reads a `FetchOrder` from standard input and writes a `Fetched` a line to standard output; ends when its standard input
does. Files come by huggingface_hub's own requests, with its rules for HF_ENDPOINT and HF_TOKEN. Each is written as
`blobs/ETAG.incomplete`, which a later run extends: the library itself would begin a file anew after every crash. When
all are there, its `snapshot_download` finds them and lays the snapshot out.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlparse

import httpx2
import msgspec
from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._headers import build_hf_headers

from core.errors import MaclusterError, TransferError
from core.models.files.fetch_messages import Fetched, FetchOrder
from core.settings import GB, MIB
from core.text import clean_text

CONNECTIONS: Final = 4
FETCHED_EVERY_S: Final = 0.25
PIECE_BYTES: Final = MIB // 8
SPARE_BYTES: Final = GB
MAX_FILES: Final = 1000
# what a model is made of; never what can run code: no Python, no pickle
KINDS: Final = (".safetensors", ".json", ".jinja", ".txt", ".model", ".tiktoken")
_TEMPLATES: Final = "additional_chat_templates/"
_ETAG: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Wanted(NamedTuple):
    """A file of a repository: its size in bytes, and its name in the cache, which is its hash."""

    name: str
    size: int
    blob: Path


def wanted_names(names: Sequence[str]) -> list[str]:
    """Those files of a repository that make up a model. Weights come twice in some: then as model*.safetensors."""
    plain = [n for n in names if n.endswith(KINDS) and "/" not in n.removeprefix(_TEMPLATES)]
    doubled = any(n.startswith("model") and n.endswith(".safetensors") for n in plain)
    return [n for n in plain if not (doubled and n.endswith(".safetensors") and not n.startswith("model"))]


def fetch(order: FetchOrder, report: Callable[[Fetched], None]) -> None:
    """Download what is not there yet. Raises TransferError, and what the hub's library raises."""
    api = HfApi()
    commit = api.repo_info(order.repo, revision=order.revision).sha
    files = _listed(api, order, str(commit))
    total = sum(file.size for file in files)
    _check_room(Path(order.cache), total - _there(files))
    ended = threading.Event()
    reporter = threading.Thread(target=_keep_reporting, args=(files, total, report, ended), daemon=True)
    reporter.start()
    pool = ThreadPoolExecutor(CONNECTIONS)
    try:
        for coming in as_completed([pool.submit(_bring, order.repo, str(commit), file) for file in files]):
            coming.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        ended.set()
    reporter.join()
    report(Fetched(done=total, total=total))
    names = [glob.escape(file.name) for file in files]
    snapshot_download(order.repo, revision=order.revision, cache_dir=order.cache, allow_patterns=names)


def _listed(api: HfApi, order: FetchOrder, commit: str) -> list[Wanted]:
    blobs = Path(order.cache) / repo_folder_name(repo_id=order.repo, repo_type="model") / "blobs"
    found = {
        f.path: f for f in api.list_repo_tree(order.repo, recursive=True, revision=commit) if isinstance(f, RepoFile)
    }
    names = wanted_names(sorted(found))
    if not any(name.endswith(".safetensors") for name in names):
        what = f"{order.repo} has no safetensors weights."
        raise TransferError(what, "Choose a repository that has them, such as one of mlx-community.")
    if len(names) > MAX_FILES:
        raise TransferError(f"{order.repo} has {len(names)} files.", "Choose another repository.")
    files = []
    for name in names:
        file = found[name]
        etag = file.lfs.sha256 if file.lfs else file.blob_id
        if not _ETAG.fullmatch(etag):
            raise TransferError(f"The hub gives {name} of {order.repo} no usable hash.", "Choose another repository.")
        files.append(Wanted(name, file.size, blobs / etag))
    blobs.mkdir(parents=True, exist_ok=True)
    return files


def _bring(repo: str, commit: str, file: Wanted) -> None:
    """One file, from where an earlier run stopped."""
    if file.blob.exists():
        return
    partial = _partial(file)
    url = hf_hub_url(repo, file.name, revision=commit)
    headers = build_hf_headers()
    location = get_hf_file_metadata(url, headers=headers).location
    if urlparse(location)[:2] != urlparse(url)[:2]:
        headers.pop("authorization", None)  # the token is for the hub, not for whoever stores its files or listens
    if partial.exists() and partial.stat().st_size > file.size:
        partial.unlink()
    with _NoLonger(partial, file.size) as out:
        if (size := out.tell()) < file.size:
            http_get(location, out, resume_size=size, headers=headers, expected_size=file.size)
    _check_hash(file, partial)
    partial.replace(file.blob)


class _NoLonger(io.FileIO):
    """A file to go on with that takes `most` bytes in all: who answers for the hub may send without end."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "ab")
        self._most = most

    def write(self, data: Any) -> int:
        """Raises TransferError."""
        if self.tell() + len(memoryview(data)) > self._most:
            raise TransferError("It is larger than the hub said.", "Try again, or choose another repository.")
        return super().write(data)


def _check_hash(file: Wanted, partial: Path) -> None:
    """Large files are named by their SHA-256, others as git names them, by a SHA-1 of length and content."""
    large = len(file.blob.name) == 64
    digest = hashlib.sha256() if large else hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    with partial.open("rb") as content:
        while piece := content.read(MIB):
            digest.update(piece)
    if digest.hexdigest() != file.blob.name:
        partial.unlink()
        raise TransferError(f"{file.name} arrived damaged.", "Download it again: what is whole is kept.")


def _partial(file: Wanted) -> Path:
    return file.blob.with_name(f"{file.blob.name}.incomplete")


def _there(files: Sequence[Wanted]) -> int:
    """Bytes that are on disk, whole files and parts."""
    sizes = 0
    for file in files:
        for path in (file.blob, _partial(file)):
            try:
                sizes += min(path.stat().st_size, file.size)
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


def explained(error: Exception, repo: str) -> MaclusterError:
    """What went wrong, in words of ours."""
    match error:
        case MaclusterError():
            return error
        case GatedRepoError():
            cure = "Accept its terms on the hub's page, then set HF_TOKEN to a token of yours and restart the node."
            return TransferError(f"{repo} is gated: the hub needs a token that may read it.", cure)
        case RevisionNotFoundError():
            return TransferError(f"{repo} has no such revision.", "Leave the revision out, or see the hub's page.")
        case RepositoryNotFoundError():
            cure = "Check the spelling, owner/name; a private one needs HF_TOKEN where the node runs."
            return TransferError(f"The hub has no model {repo}, or this Mac may not see it.", cure)
        case HFValidationError():
            return TransferError(f"{repo!r} is not the name of a repository.", "Names are owner/name.")
        case OfflineModeIsEnabled():
            return TransferError("HF_HUB_OFFLINE is set: nothing is downloaded.", "Start the node without it.")
        case HfHubHTTPError(response=response):
            return TransferError(f"The hub answers with HTTP {response.status_code}.", "Try again later.")
        case httpx2.HTTPError():
            cure = "Check the network and HF_ENDPOINT, then try again: it goes on where it stopped."
            return TransferError(f"The hub cannot be reached ({type(error).__name__}).", cure)
        case OSError(errno=errno.ENOSPC):
            return TransferError("The disk is full.", "Make room, then try again: it goes on where it stopped.")
        case _:
            return TransferError(f"Downloading {repo} failed: {clean_text(str(error))[:200]}")


def main() -> int:
    """The child: returns its exit status."""
    output = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not run into the lines
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    order = msgspec.json.decode(line, type=FetchOrder)
    constants.DOWNLOAD_CHUNK_SIZE = PIECE_BYTES  # by its 10 MiB no progress is seen on a slow line, and much is lost
    turn = threading.Lock()

    def report(fetched: Fetched) -> None:
        with turn:
            os.write(output, msgspec.json.encode(fetched) + b"\n")

    try:
        fetch(order, report)
    except Exception as error:  # a library may raise anything, and the person is to read it
        report(Fetched(problem=explained(error, order.repo).problem))
        return 1
    return 0


def _end_with_parent() -> None:
    while os.read(0, 4096):
        time.sleep(FETCHED_EVERY_S)
    os._exit(1)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # connections that still come in are not waited for
