"""Downloads a hub model, or parts of one (`hub_download_parts`), resuming where an earlier run stopped.

`python -m core.models.files.hub_download` reads one order from standard input, then rate limits, in the form of
`core.pipe_messages`. It writes `Fetched` messages to standard output and ends when standard input closes. HF_ENDPOINT
and HF_TOKEN follow huggingface_hub's rules. A whole model goes into a hub cache, where other programs find it: each
file is written as `blobs/ETAG.incomplete`, which a later run extends; the library itself restarts a file after a crash.
When all files are there, the snapshot is laid out as the library does it: links to the verified blobs.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import httpx2
import msgspec
from huggingface_hub import errors as hub_errors
from huggingface_hub.file_download import repo_folder_name

from core.errors import MaclusterError, TransferError
from core.models.files import hub_download_parts
from core.models.files.block_writer import check_free
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.child_start import say_hello
from core.models.files.hub_download_messages import AnyOrder, BeginOrder, Fetched, FetchOrder, LimitOrder, PartsOrder
from core.models.files.hub_files import HubFile, model_of
from core.models.files.hub_reader import HubReader, Patience, in_threads
from core.models.files.model_settings import SMALL_FILES
from core.pipe_messages import read_messages, write_message
from core.text import clean_text

_CURES: Final = {
    401: "Set HF_TOKEN to a valid token (or to none, for public models) and restart the node; "
    "`hf auth login` may have stored one that has expired.",
    403: "Use a token that may read this repository: set HF_TOKEN, then restart the node.",
    429: "The hub limits how often it is asked: wait some minutes, or set HF_TOKEN, which allows more.",
}


class Wanted(NamedTuple):
    """A file to download and its place in the cache, which is named after its hash."""

    file: HubFile
    blob: Path

    @property
    def begun(self) -> Path:
        return self.blob.with_name(f"{self.blob.name}.incomplete")


def fetch(order: FetchOrder, report: Callable[[Fetched], None], pace: ByteRateLimit) -> None:
    """Download the missing files; the weights only of a model that can run here. Raises TransferError,
    UnsupportedModel, BadModel, and huggingface_hub's errors.
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
    if not order.anyway:
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


def explained(error: Exception, repo: str) -> MaclusterError:
    """Our error for an error of the download."""
    match error:
        case MaclusterError():
            return error
        case hub_errors.GatedRepoError():
            cure = "Accept its terms on the hub's page, then set HF_TOKEN to a token of yours and restart the node."
            return TransferError(f"{repo} is gated: the hub needs a token that may read it.", cure)
        case hub_errors.RevisionNotFoundError():
            return TransferError(f"{repo} has no such revision.", "Leave the revision out, or see the hub's page.")
        case hub_errors.RepositoryNotFoundError():
            cure = "Check the spelling, owner/name; one that is not public needs HF_TOKEN where the node runs."
            return TransferError(f"The hub has no model {repo}, or this Mac may not see it.", cure)
        case hub_errors.HFValidationError():
            return TransferError(f"{repo!r} is not the name of a repository.", "Names are owner/name.")
        case hub_errors.OfflineModeIsEnabled():
            return TransferError("HF_HUB_OFFLINE is set: nothing is downloaded.", "Start the node without it.")
        case hub_errors.DisabledRepoError():
            return TransferError(f"The hub has disabled {repo}.", "Choose another repository.")
        case hub_errors.HfHubHTTPError(response=response):
            what = f"The hub answered HTTP {response.status_code}."
            if said := clean_text(response.headers.get("x-error-message", ""))[:200].rstrip("."):
                what = f"{what[:-1]}: {said}."
            return TransferError(what, _CURES.get(response.status_code, "Try again later."))
        case msgspec.DecodeError():
            cure = "If this network asks for a login, open a browser and log in; else check HF_ENDPOINT."
            return TransferError("A web page came in place of the hub's answer.", cure)
        case httpx2.HTTPError():
            cure = "Check the network and HF_ENDPOINT, then try again; the download resumes."
            return TransferError(f"The hub cannot be reached ({type(error).__name__}).", cure)
        case OSError(errno=errno.ENOSPC):
            return TransferError("The disk is full.", "Free some space, then try again; the download resumes.")
        case _:
            return TransferError(f"Downloading {repo} failed: {clean_text(str(error))[:200]}")


def main() -> int:
    """Run the child; returns its exit status."""
    output = os.dup(1)
    say_hello()
    os.dup2(2, 1)  # keeps libraries from printing into the messages
    arriving = read_messages(partial(os.read, 0))
    order: FetchOrder | BeginOrder | PartsOrder = msgspec.msgpack.decode(next(arriving), type=AnyOrder)
    pace = ByteRateLimit()
    threading.Thread(target=_follow_parent, args=(arriving, pace), daemon=True).start()
    report: Callable[[Fetched], None] = partial(write_message, output)
    try:
        match order:
            case FetchOrder():
                fetch(order, report, pace)
            case BeginOrder():
                hub_download_parts.begin(order, report)
            case PartsOrder():
                hub_download_parts.bring(order, report, pace)
    except Exception as error:  # a library may raise anything, and the user should read it
        repo = order.origin.repo if isinstance(order, PartsOrder) else order.repo
        report(Fetched(problem=explained(error, repo).problem))
        return 1
    return 0


def _follow_parent(arriving: Iterator[bytes], pace: ByteRateLimit) -> None:
    for body in arriving:
        pace.change(msgspec.msgpack.decode(body, type=LimitOrder).bytes_per_s)
    os._exit(1)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # without waiting for open connections
