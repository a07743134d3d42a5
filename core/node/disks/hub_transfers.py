"""Downloads from the hub, each in a child process, so that a library's output never reaches the screen."""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from core.errors import TransferError, error_from
from core.models.files.block_map import read_map
from core.models.files.catalog import ModelEntry
from core.models.files.child_start import ChildStart
from core.models.files.hub_download_messages import AnyOrder, BeginOrder, Fetched, LimitOrder, PartsOrder
from core.models.files.hub_origin import read_origin, write_origin
from core.models.files.model_folder import read_folder
from core.node.disks.block_fetch import WantedCopy
from core.node.disks.copy_checks import PARTIAL, check_same, check_usable, copies_here, finished_folder
from core.node.disks.local_models import LocalModels
from core.node.disks.transfer_progress import Report, TransferProgress
from core.pipe_messages import pack, read_message

_QUIET: Final = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",  # Xet downloads can't be resumed
}


async def download(order: AnyOrder, model: str, progress: TransferProgress, report: Report) -> str:
    """Carry out `order` in a child; returns the folder that a BeginOrder made. `model`: name for errors.

    Cancelling ends the child; fetched data stays. Raises TransferError, and NodeError if the child can't start.
    """
    start = ChildStart("core.models.files.hub_download", env={**os.environ, **_QUIET})
    child = await asyncio.create_subprocess_exec(*start.command, stdin=PIPE, stdout=PIPE, **start.options)
    start.close()
    assert child.stdin
    assert child.stdout
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
            what = f"Downloading {model} ended unexpectedly (exit status {child.returncode})."
            raise start.fault() or TransferError(what)
        return place
    except (ConnectionError, msgspec.MsgspecError) as error:
        raise start.fault() or TransferError(f"Downloading {model} ended unexpectedly.") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


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
