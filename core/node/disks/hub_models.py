"""Models of the hub that come by ranges: what tells of one first, so that it can be planned, then what a plan needs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from core.errors import BadModel, ModelMismatch, TransferError
from core.models.files.block_map import FileFacts, read_map
from core.models.files.block_writer import BlockWriter
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.catalog import ModelEntry, fingerprint, short_name
from core.models.files.hub_download_messages import BeginOrder, PartsOrder
from core.models.files.hub_origin import HubOrigin, read_origin, write_origin
from core.models.files.parts import Part
from core.node.disks.downloads import download
from core.node.disks.local_models import LocalModels
from core.node.disks.places import PARTIAL, check_usable, free_place

Report = Callable[[bool, int, int], None]


async def begin(models: LocalModels, folder: Path, repo: str, revision: str, report: Report) -> str:
    """Have the settings and headers of a model in `folder`, unless they are there; its fingerprint. Raises
    TransferError, BadModel, ModelMismatch.
    """
    place = ""
    order = BeginOrder(repo=repo, revision=revision, below=str(folder / PARTIAL))
    async for fetched in download(order, repo, ByteRateLimit()):
        report(False, fetched.done, fetched.total)
        place = fetched.place
    if not place:
        raise TransferError(f"Downloading {repo} ended unexpectedly.")
    entries = await models.list()
    return await asyncio.to_thread(_settle, Path(place), folder, repo, entries)


def _settle(begun: Path, folder: Path, repo: str, entries: Sequence[ModelEntry]) -> str:
    """Put what was begun among the models, or leave it to the one that is there already."""
    check_usable(begun, repo, "Choose another repository.")
    print_of = fingerprint(begun)
    alike = [entry for entry in entries if entry.fingerprint == print_of]
    if not alike:
        begun.rename(free_place(folder, repo, print_of, {short_name(entry.name) for entry in entries}))
        return print_of
    origin, files = read_origin(begun), read_map(begun)
    shutil.rmtree(begun)
    for entry in alike:
        there = read_map(Path(entry.path))
        if there and files and there.files != files.files:
            what = f"{entry.name} on this Mac is a part of other files than those of {repo} on the hub now."
            raise ModelMismatch(what, f"Delete {entry.path}, then download again.")
        if there and origin:
            write_origin(Path(entry.path), origin)
    return print_of


async def bring(
    name: str,
    begun: Path,
    files: dict[str, FileFacts],
    origin: HubOrigin,
    parts: Sequence[Part],
    report: Report,
    pace: ByteRateLimit,
) -> None:
    """Have `parts` of a model from the hub in the folder `begun`. `report`: whether hashes are compared, how many bytes
    are there, and of how many. Raises TransferError.
    """
    await asyncio.to_thread(_prepare, begun, files)
    async for fetched in download(PartsOrder(folder=str(begun), origin=origin, parts=tuple(parts)), name, pace):
        report(fetched.checking, fetched.done, fetched.total)


def _prepare(begun: Path, files: dict[str, FileFacts]) -> None:
    try:
        there = read_map(begun)
    except BadModel:
        there = None
    if there is None or there.files != files:
        BlockWriter(begun, files).close()
