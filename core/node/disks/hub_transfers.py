"""Downloads from the hub, each in a child process, so that a library's output never reaches the screen."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import psutil

from core.errors import TransferError, error_from
from core.mac import time_machine
from core.models.files.block_map import read_map
from core.models.files.catalog import ModelEntry
from core.models.files.child_start import ChildStart, starting
from core.models.files.hub_download_messages import AnyOrder, BeginOrder, Fetched, LimitOrder, PartsOrder
from core.models.files.hub_origin import read_origin, write_origin
from core.models.files.model_folder import read_folder
from core.models.files.sandbox import rss_of
from core.node.disks.block_fetch import WantedCopy
from core.node.disks.copy_checks import PARTIAL, check_same, check_usable, copies_here, finished_folder
from core.node.disks.local_models import LocalModels
from core.node.disks.transfer_progress import Report, TransferProgress
from core.pipe_messages import pack, read_message
from core.settings import MIB

MAX_RSS_BYTES: Final = 2048 * MIB
LOOK_S: Final = 0.25
_QUIET: Final = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",  # Xet downloads can't be resumed
}
# variables that the hub's library, Python, TLS and proxies read; no others, since the child reads foreign bytes
_NEEDED: Final = re.compile(r"(HF|HUGGING|XDG|SSL)_.*|PATH|PYTHONPATH|HOME|TZ|.*_CA_BUNDLE|.*_PROXY", re.IGNORECASE)


async def download(order: AnyOrder, model: str, progress: TransferProgress, report: Report) -> str:
    """Carry out `order` in a child; returns the folder that a BeginOrder made. `model`: name for errors.

    Cancelling ends the child; fetched data stays. Raises TransferError, and NodeError if the child can't start.
    """
    needed = {name: value for name, value in os.environ.items() if _NEEDED.fullmatch(name)}
    with starting(f"Downloading {model}"):
        start = ChildStart("core.models.files.hub_download", env={**needed, **_QUIET})
        child = await asyncio.create_subprocess_exec(*start.command, stdin=PIPE, stdout=PIPE, **start.options)
    start.close()
    assert child.stdin
    assert child.stdout
    outgrown = asyncio.create_task(_outgrows(child))
    try:
        sent_limit, place = 0, ""
        child.stdin.write(pack(order))
        while True:
            if progress.limit.bytes_per_s != sent_limit:
                sent_limit = progress.limit.bytes_per_s
                child.stdin.write(pack(LimitOrder(bytes_per_s=sent_limit)))
            try:
                body = await read_message(child.stdout)
            except asyncio.IncompleteReadError:
                break
            fetched = msgspec.msgpack.decode(body, type=Fetched)
            if fetched.problem:
                raise error_from(fetched.problem)
            if fetched.waits_until:
                progress.wait(fetched.waits_until)
                continue
            report("checking" if fetched.checking else "running", fetched.done, fetched.total)
            place = fetched.place
        if await child.wait() != 0:
            if outgrown.done() and outgrown.exception() is None:  # else the child had ended before it was looked at
                what = f"Downloading {model} takes more than {MAX_RSS_BYTES // MIB} MiB of memory."
                raise TransferError(what, "Choose another repository.")
            what = f"Downloading {model} ended unexpectedly (exit status {child.returncode})."
            raise start.fault() or TransferError(what)
        return place
    except (ConnectionError, msgspec.MsgspecError) as error:
        raise start.fault() or TransferError(f"Downloading {model} ended unexpectedly.") from error
    finally:
        outgrown.cancel()
        if child.returncode is None:
            child.kill()
            await child.wait()


async def _outgrows(child: asyncio.subprocess.Process) -> None:
    """End the child when it takes more than MAX_RSS_BYTES of memory."""
    process = psutil.Process(child.pid)
    while rss_of(process) <= MAX_RSS_BYTES:  # noqa: ASYNC110 – nothing tells when memory grows
        await asyncio.sleep(LOOK_S)
    child.kill()


async def begin_model(models: LocalModels, folder: Path, repo: str, revision: str, progress: TransferProgress) -> str:
    """Download a model's settings and headers into `folder`, so that it can be planned; returns its fingerprint.

    Raises TransferError, BadModel, ModelMismatch.
    """
    order = BeginOrder(repo=repo, revision=revision, below=str(folder / PARTIAL))
    if not (place := await download(order, repo, progress, progress.count)):
        raise TransferError(f"Downloading {repo} ended unexpectedly.")
    return await asyncio.to_thread(_settle, Path(place), folder, repo, await models.list())


def _settle(begun: Path, folder: Path, repo: str, entries: Sequence[ModelEntry]) -> str:
    """Move the new folder to the models, or delete it if the same model is there already."""
    time_machine.exclude(folder)
    check_usable(begun, repo, "Choose another repository.")
    print_of = read_folder(begun).fingerprint
    if not (here := copies_here(entries, print_of)):
        begun.rename(finished_folder(folder, repo, print_of, entries))
        return print_of
    origin, files = read_origin(begun), read_map(begun)
    shutil.rmtree(begun)
    for place, there in here.items():
        if there and files:
            check_same(place, there, files.files, f"{repo} on the hub now", "download")
        if there and origin:
            write_origin(place, origin)
    return print_of


async def fetch_parts(copy: WantedCopy, report: Report) -> None:
    """Download the wanted parts of a hub model. Raises TransferError."""
    assert copy.model.hub
    order = PartsOrder(folder=str(copy.folder), files=dict(copy.files), origin=copy.model.hub, parts=tuple(copy.wanted))
    await download(order, copy.model.name, copy.progress, report)
