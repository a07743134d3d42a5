"""Models that go from one Mac's disk to another's: the one that lacks a model asks for its files, part by part.

Parts are small and few are under way, so that signs of life and tokens of other links never wait long for them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from core.errors import (
    BadModel,
    LinkLost,
    LinkTimeout,
    MaclusterError,
    ModelError,
    ModelMismatch,
    TransferError,
    UnsupportedModel,
)
from core.models.files.block_map import FileFacts
from core.models.files.catalog import fingerprint, read_model, short_name
from core.models.files.folder import MAX_JSON_BYTES
from core.models.files.safetensors import DECIDING_FILES
from core.node.base.messages import (
    PART_BYTES,
    AnyMessage,
    FilesAsk,
    FilesSent,
    FileWord,
    HeldModel,
    PartAsk,
    PartSent,
    to_frame,
)
from core.node.disks.local_models import LocalModels
from core.settings import GB, MAX_CONTROL_BODY, MIB
from core.trust.files import private_folder

WINDOW: Final = 4
PART_S: Final = 30.0
LIST_S: Final = 900.0  # the sender may have to hash all of it first
SPARE_BYTES: Final = GB
MAX_WEIGHTS: Final = 1000 * GB
PARTIAL: Final = ".partial"
MAX_BEGUN: Final = 16  # that nobody has ended: another Mac may begin one, too
_WEIGHTS: Final = re.compile(r"model[A-Za-z0-9_-]{0,100}(\.[A-Za-z0-9_-]{1,50})?\.safetensors")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")

Stage = Literal["running", "checking"]
Report = Callable[[Stage, int, int], None]

_T = TypeVar("_T")


class PartSender(Protocol):
    """How to send to a linked Mac."""

    async def send(self, device_id: str, message: AnyMessage) -> bool:
        """Whether it went out."""


class _Served(NamedTuple):
    """A model that another Mac is copying: its directory, and the files that it may ask for."""

    directory: Path
    names: frozenset[str]


class ModelCopies:
    """Gives files of models to linked Macs, and fetches models from them into `folder`, a directory each."""

    def __init__(self, models: LocalModels, sender: PartSender, folder: Path) -> None:
        self._models, self._sender, self._folder = models, sender, folder
        self._served: dict[tuple[str, str], _Served] = {}
        self._wanted: dict[str, str] = {}
        self._answering: set[str] = set()
        self._to_send: dict[str, deque[PartAsk]] = {}
        self._sending: Counter[str] = Counter()
        self._numbers = count(1)
        self._lists: dict[tuple[str, str], asyncio.Future[FilesSent]] = {}
        self._parts: dict[tuple[str, int], asyncio.Future[bytes]] = {}

    async def handle_message(self, device_id: str, message: FileWord) -> None:
        """Another Mac asks for files, or sends what this one asked for."""
        match message:
            case FilesAsk():
                await self._send_files(device_id, message.fingerprint)
            case PartAsk():
                await self._send_parts(device_id, message)
            case FilesSent():
                _settle(self._lists.get((device_id, message.fingerprint)), message)
            case PartSent():
                _settle(self._parts.get((device_id, message.number)), message.data)

    def gone(self, device_id: str) -> None:
        """That Mac is linked no more."""
        lost = LinkLost("The Mac that has the model is gone.", "Copy again when it is back: it goes on there.")
        for key, listed in self._lists.items():
            _fail(listed if key[0] == device_id else None, lost)
        for part, coming in self._parts.items():
            _fail(coming if part[0] == device_id else None, lost)
        self._wanted.pop(device_id, None)
        for key in [key for key in self._served if key[0] == device_id]:
            del self._served[key]

    async def _send_files(self, device_id: str, wanted: str) -> None:
        """One answer a Mac at a time, for files may be hashed for it, and of the questions that wait only the last
        counts.
        """
        self._wanted[device_id] = wanted
        if device_id in self._answering:
            return
        self._answering.add(device_id)
        try:
            while device_id in self._wanted:
                await self._send_files_of(device_id, self._wanted.pop(device_id))
        finally:
            self._answering.discard(device_id)

    async def _send_files_of(self, device_id: str, wanted: str) -> None:
        try:
            directory = await self._models.find_same("", wanted)
            hashes = await self._models.manifest(directory)
            facts = await asyncio.to_thread(_facts, directory, hashes)
            reply = FilesSent(fingerprint=wanted, files=facts)
            if len(to_frame(reply)[1]) > MAX_CONTROL_BODY:
                raise TransferError(f"{directory.name} has {len(facts)} files, too many to copy.", "Copy it by hand.")
            self._served[device_id, wanted] = _Served(directory, frozenset(facts))
        except MaclusterError as error:
            reply = FilesSent(fingerprint=wanted, problem=error.problem)
        if not await self._sender.send(device_id, reply):
            self._served.pop((device_id, wanted), None)

    async def _send_parts(self, device_id: str, wanted: PartAsk) -> None:
        """So many at a time as an honest Mac asks for, so that who asks and does not read makes this Mac hold no more;
        and not much more of what is asked is remembered.
        """
        waiting = self._to_send.setdefault(device_id, deque())
        if len(waiting) < 2 * WINDOW:
            waiting.append(wanted)
        if self._sending[device_id] == WINDOW:
            return
        self._sending[device_id] += 1
        try:
            while waiting:
                await self._send_part(device_id, waiting.popleft())
        finally:
            self._sending[device_id] -= 1

    async def _send_part(self, device_id: str, wanted: PartAsk) -> None:
        served = self._served.get((device_id, wanted.fingerprint))
        if served is not None and wanted.name in served.names:
            data = await asyncio.to_thread(_read_part, served.directory / wanted.name, wanted.offset)
            await self._sender.send(device_id, PartSent(number=wanted.number, data=data))

    async def fetch(self, source: str, model: HeldModel, report: Report) -> None:
        """Copy a model from a linked Mac. `report` gets "running" or "checking", bytes that are there, and of how many.

        Raises TransferError, ModelMismatch, LinkLost, LinkTimeout, BadModel; what is there then is kept, and gone on
        with.
        """
        files = await self._ask_files(source, model.fingerprint)
        partial = self._folder / PARTIAL / model.fingerprint
        await asyncio.to_thread(_check_begun, partial)
        for folder in (self._folder / PARTIAL, partial):
            await asyncio.to_thread(private_folder, folder, TransferError)
        total = sum(facts.size for facts in files.values())
        there = await asyncio.to_thread(_begin, partial, files, total)
        report("running", there, total)
        for name, facts in files.items():
            there = await self._bring(source, model.fingerprint, name, facts, partial / name, there, total, report)
        report("checking", total, total)
        taken = {short_name(entry.name) for entry in await self._models.list()}
        await asyncio.to_thread(_finish, partial, files, model, self._folder, taken)

    async def _ask_files(self, source: str, wanted: str) -> Mapping[str, FileFacts]:
        key = (source, wanted)
        waiting: asyncio.Future[FilesSent]
        waiting = self._lists[key] = asyncio.get_running_loop().create_future()
        try:
            await self._send(source, FilesAsk(fingerprint=wanted))
            reply = await _in_time(waiting, LIST_S)
        finally:
            del self._lists[key]
        if reply.problem:
            raise TransferError(f"The other Mac cannot send it: {reply.problem.what}", reply.problem.fix)
        check_names(reply.files)
        return reply.files

    async def _bring(
        self, source: str, wanted: str, name: str, facts: FileFacts, path: Path, there: int, total: int, report: Report
    ) -> int:
        """The rest of one file; the bytes of the model that are there then."""
        try:
            with path.open("ab", buffering=0) as out:
                async with aclosing(self._parts_of(source, wanted, name, out.tell(), facts.size)) as parts:
                    async for data in parts:
                        await asyncio.to_thread(out.write, data)
                        there += len(data)
                        report("running", there, total)
        except OSError as error:
            raise TransferError(f"{name} cannot be written: {error.strerror}.", "Make room on this disk.") from error
        return there

    async def _parts_of(
        self, source: str, wanted: str, name: str, begin: int, size: int
    ) -> AsyncGenerator[bytes, None]:
        """The bytes [begin, size) of a file in their order; a few parts are always under way."""
        waiting: deque[tuple[int, int, asyncio.Future[bytes]]] = deque()
        asked = begin
        try:
            while asked < size or waiting:
                while asked < size and len(waiting) < WINDOW:
                    length = min(PART_BYTES, size - asked)
                    waiting.append((length, *await self._ask_part(source, wanted, name, asked)))
                    asked += length
                length, number, coming = waiting[0]
                data = await _in_time(coming, PART_S)
                waiting.popleft()
                del self._parts[source, number]
                if len(data) != length:
                    raise TransferError(f"{name} changed on the other Mac while it was copied.")
                yield data
        finally:
            for _, number, coming in waiting:
                coming.cancel()
                del self._parts[source, number]

    async def _ask_part(self, source: str, wanted: str, name: str, offset: int) -> tuple[int, asyncio.Future[bytes]]:
        number = next(self._numbers)
        coming = self._parts[source, number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(source, PartAsk(number=number, fingerprint=wanted, name=name, offset=offset))
        except BaseException:  # also where nobody waits for it any more
            del self._parts[source, number]
            raise
        return number, coming

    async def _send(self, device_id: str, message: AnyMessage) -> None:
        if not await self._sender.send(device_id, message):
            raise LinkLost("The Mac that has the model is not linked.", "Wait until it is back, then copy again.")


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


def _facts(directory: Path, hashes: Mapping[str, str]) -> dict[str, FileFacts]:
    return {name: FileFacts(size=(directory / name).stat().st_size, sha256=sha256) for name, sha256 in hashes.items()}


def _read_part(file: Path, offset: int) -> bytes:
    """Nothing where it cannot be read any more."""
    try:
        with file.open("rb") as content:
            content.seek(offset)
            return content.read(PART_BYTES)
    except OSError:
        return b""


def _check_begun(partial: Path) -> None:
    """Raises TransferError where too many others lie there begun."""
    begun = partial.parent
    if begun.is_dir() and not partial.exists() and len(list(begun.iterdir())) >= MAX_BEGUN:
        cure = f"Finish one of them, or delete what you do not want in {begun}."
        raise TransferError(f"{MAX_BEGUN} models are copied to that Mac only in part.", cure)


def _begin(partial: Path, files: Mapping[str, FileFacts], total: int) -> int:
    """Bytes that an earlier try has left. Raises TransferError where there is no room for the others."""
    for left in partial.iterdir():
        if left.name not in files or left.is_symlink() or left.stat().st_size > files[left.name].size:
            left.unlink()
    there = sum(left.stat().st_size for left in partial.iterdir())
    free = shutil.disk_usage(partial).free
    if total - there + SPARE_BYTES > free:
        what = f"{(total - there) / GB:.1f} GB are missing, and {free / GB:.1f} GB are free on this disk."
        raise TransferError(what, "Make room on the disk, then try again.")
    return there


def _finish(partial: Path, files: Mapping[str, FileFacts], model: HeldModel, folder: Path, taken: set[str]) -> None:
    """Look whether all is what it should be, and give it its place."""
    for name, facts in files.items():
        digest = hashlib.sha256()
        with (partial / name).open("rb") as content:
            while piece := content.read(MIB):
                digest.update(piece)
            os.fsync(content.fileno())
        if digest.hexdigest() != facts.sha256:
            (partial / name).unlink()
            raise TransferError(f"{name} arrived damaged.", "Copy again: what is whole is kept.")
    try:
        found = fingerprint(partial)
    except ModelError:
        found = ""
    if found != model.fingerprint:
        shutil.rmtree(partial)
        raise ModelMismatch("Another model arrived than was asked for.", "Check the files on the other Mac.")
    try:
        read_model(partial)
    except BadModel as error:
        shutil.rmtree(partial)
        raise BadModel(f"What arrived cannot be used: {error.what}", "Check the files on the other Mac.") from error
    except UnsupportedModel:
        pass  # the list of models says so: another mlx-lm may know it
    partial.rename(_free_place(folder, model, taken))


def _free_place(folder: Path, model: HeldModel, taken: set[str]) -> Path:
    """Never one that would make it answer to the name of another model of this Mac."""
    name = _UNFIT.sub("-", short_name(model.name)).strip(".-")[:80] or "model"
    place = folder / name
    return folder / f"{name}-{model.fingerprint[:8]}" if name in taken or place.exists() else place


async def _in_time(waiting: asyncio.Future[_T], seconds: float) -> _T:
    try:
        return await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        raise LinkTimeout("The Mac that has the model does not send it.", "Copy again: it goes on there.") from None


def _fail(waiting: asyncio.Future[Any] | None, error: Exception) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_exception(error)


def _settle(waiting: asyncio.Future[_T] | None, value: _T) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(value)
