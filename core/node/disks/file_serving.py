"""Gives files of this Mac's models to linked Macs: which there are, the hashes of their blocks, their bytes."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from core.errors import MaclusterError, TransferError
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts, read_map
from core.models.files.parts import Part
from core.node.base.messages import (
    MAX_HASHES,
    NOT_HERE,
    PART_BYTES,
    AnyMessage,
    FilesSent,
    HashesAsk,
    PartAsk,
    PartSent,
    to_frame,
)
from core.node.disks.local_models import LocalModels
from core.settings import MAX_CONTROL_BODY

WINDOW: Final = 4
MAX_WAITING: Final = 16


class FileSender(Protocol):
    """How to send to a linked Mac."""

    async def send(self, device_id: str, message: AnyMessage) -> bool:
        """Whether it went out."""


class _Served(NamedTuple):
    """A model that another Mac is copying: its directory, its files, and which blocks are there, None for all."""

    directory: Path
    files: Mapping[str, FileFacts]
    there: BlockMap | None


class FileServing:
    """Answers a Mac at a time, and of each few questions at once: parts are small and few are under way, so that signs
    of life and tokens of other links never wait long for them.
    """

    def __init__(self, models: LocalModels, sender: FileSender) -> None:
        self._models, self._sender = models, sender
        self._served: dict[tuple[str, str], _Served] = {}
        self._wanted: dict[str, str] = {}
        self._answering: set[str] = set()
        self._to_send: dict[str, deque[PartAsk | HashesAsk]] = {}
        self._sending: Counter[str] = Counter()

    def gone(self, device_id: str) -> None:
        """That Mac is linked no more."""
        self._wanted.pop(device_id, None)
        for key in [key for key in self._served if key[0] == device_id]:
            del self._served[key]

    async def send_files(self, device_id: str, wanted: str) -> None:
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
            served = await asyncio.to_thread(_served, directory, hashes)
            reply = FilesSent(fingerprint=wanted, files=dict(served.files))
            if len(to_frame(reply)[1]) > MAX_CONTROL_BODY:
                raise TransferError(f"{directory.name} has {len(hashes)} files, too many to copy.", "Copy it by hand.")
            self._served[device_id, wanted] = served
        except MaclusterError as error:
            reply = FilesSent(fingerprint=wanted, problem=error.problem)
        if not await self._sender.send(device_id, reply):
            self._served.pop((device_id, wanted), None)

    async def send_part(self, device_id: str, wanted: PartAsk | HashesAsk) -> None:
        """So many at a time as an honest Mac asks for, so that who asks and does not read makes this Mac hold no more;
        and not much more of what is asked is remembered.
        """
        waiting = self._to_send.setdefault(device_id, deque())
        if len(waiting) < MAX_WAITING:
            waiting.append(wanted)
        if self._sending[device_id] == WINDOW:
            return
        self._sending[device_id] += 1
        try:
            while waiting:
                await self._answer(device_id, waiting.popleft())
        finally:
            self._sending[device_id] -= 1

    async def _answer(self, device_id: str, wanted: PartAsk | HashesAsk) -> None:
        served = self._served.get((device_id, wanted.fingerprint))
        if served is None or wanted.name not in served.files:
            return
        if isinstance(wanted, PartAsk):
            data = await asyncio.to_thread(_read_part, served, wanted.name, wanted.offset)
        else:
            data = await asyncio.to_thread(_hashes, served, wanted.name, wanted.first)
        await self._sender.send(device_id, PartSent(number=wanted.number, data=data))


def _served(directory: Path, hashes: Mapping[str, str]) -> _Served:
    sizes = {name: (directory / name).stat().st_size for name in hashes}
    files = {name: FileFacts(size=sizes[name], sha256=sha256) for name, sha256 in hashes.items()}
    return _Served(directory, files, read_map(directory))


def _read_part(served: _Served, name: str, offset: int) -> bytes:
    """Nothing where it cannot be read any more, or is not there."""
    end = min(offset + PART_BYTES, served.files[name].size)
    if served.there and served.there.lacking([Part(file=name, begin=min(offset, end), end=end)]):
        return b""
    try:
        with (served.directory / name).open("rb") as content:
            content.seek(offset)
            return content.read(PART_BYTES)
    except OSError:
        return b""


def _hashes(served: _Served, name: str, first: int) -> bytes:
    """Of the blocks from `first` on, 32 bytes each, as many as one answer takes; zeros for one that is not there."""
    numbers = served.files[name].blocks[first : first + MAX_HASHES]
    if served.there:
        known = served.there.hashes[name]
        return b"".join(known.get(number, NOT_HERE) for number in numbers)
    return b"".join(_hashed(served, name, numbers))


def _hashed(served: _Served, name: str, numbers: range) -> Iterator[bytes]:
    try:
        with (served.directory / name).open("rb") as content:
            content.seek(numbers.start * BLOCK_BYTES)
            for _ in numbers:
                yield hashlib.sha256(content.read(BLOCK_BYTES)).digest()
    except OSError:
        return
