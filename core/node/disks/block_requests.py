"""What this Mac asks of the others about files, and is waiting for."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, Final, TypeVar

from core.errors import LinkLost, LinkTimeout, TransferError
from core.node.base.node_message import NodeMessage
from core.node.base.tasks import Tasks
from core.node.disks.block_link import BlockLink
from core.node.disks.byte_links import ByteLinks
from core.node.disks.file_serving import FileSender
from core.node.disks.messages import BytesAsk, BytesReady, FilesAsk, FilesSent, HashesAsk, HashesSent

DOOR_S: Final = 30.0
HASHES_S: Final = 120.0  # a disk reads 128 MiB for it
LIST_S: Final = 900.0  # the sender may have to hash all of it first

_T = TypeVar("_T")


class BlockRequests:
    """Each method asks one Mac and waits for its answer. Raises LinkLost, LinkTimeout."""

    def __init__(self, sender: FileSender, links: ByteLinks, tasks: Tasks) -> None:
        self._sender, self._links, self._tasks = sender, links, tasks
        self._numbers = count(1)
        self._lists: dict[tuple[str, str], asyncio.Future[FilesSent]] = {}
        self._coming: dict[tuple[str, int], asyncio.Future[Any]] = {}
        self._open: list[tuple[str, BlockLink]] = []

    def settle(self, device_id: str, message: FilesSent | HashesSent | BytesReady) -> None:
        """Another Mac sends what this one may have asked for."""
        match message:
            case FilesSent():
                _settle(self._lists.get((device_id, message.fingerprint)), message)
            case HashesSent(number=number) | BytesReady(number=number):
                _settle(self._coming.get((device_id, number)), message)

    def gone(self, device_id: str) -> None:
        """That Mac is linked no more."""
        lost = LinkLost("The Mac that has the model is gone.", "Copy again when it is back: it goes on there.")
        for listed in [waiting for (source, _), waiting in self._lists.items() if source == device_id]:
            _fail(listed, lost)
        for coming in [waiting for (source, _), waiting in self._coming.items() if source == device_id]:
            _fail(coming, lost)
        for link in [link for source, link in self._open if source == device_id]:
            link.close(lost)

    async def files(self, source: str, wanted: str) -> FilesSent:
        """Which files the model has there."""
        key = (source, wanted)
        waiting: asyncio.Future[FilesSent]
        waiting = self._lists[key] = asyncio.get_running_loop().create_future()
        try:
            return await self._answer(source, FilesAsk(fingerprint=wanted), waiting, LIST_S)
        finally:
            del self._lists[key]

    async def hashes(self, source: str, wanted: str, name: str, first: int, *, compared: bool = False) -> bytes:
        """32 bytes a block, from block `first` on; as they were `compared` with the hub's hash of the file."""
        number = next(self._numbers)
        question = HashesAsk(number=number, fingerprint=wanted, name=name, first=first, compared=compared)
        sent: HashesSent = await self._ask(source, number, question, HASHES_S)
        return sent.data

    async def link(self, source: str, wanted: str) -> BlockLink:
        """A link of its own for the bytes of that model. Raises LinkError, TransferError."""
        self._open = [(mac, link) for mac, link in self._open if not link.is_closed]
        number = next(self._numbers)
        asked = BytesAsk(number=number, fingerprint=wanted)
        ready: BytesReady = await self._ask(source, number, asked, DOOR_S)
        if ready.port is None:
            problem = ready.problem or TransferError("The other Mac does not send it.").problem
            raise TransferError(problem.what, problem.fix)
        ways = self._links.ways(source)
        sealed = await asyncio.to_thread(self._links.dial, source, ways, ready.port, asked)
        link = BlockLink(sealed, self._tasks)
        self._open.append((source, link))
        return link

    async def _ask(self, source: str, number: int, question: HashesAsk | BytesAsk, seconds: float) -> Any:
        waiting: asyncio.Future[Any]
        waiting = self._coming[source, number] = asyncio.get_running_loop().create_future()
        try:
            return await self._answer(source, question, waiting, seconds)
        finally:
            del self._coming[source, number]

    async def _answer(self, source: str, question: NodeMessage, waiting: asyncio.Future[_T], seconds: float) -> _T:
        if not await self._sender.send(source, question):
            raise LinkLost("The Mac that has the model is not linked.", "Wait until it is back, then copy again.")
        try:
            return await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            what = "The Mac that has the model does not send it."
            raise LinkTimeout(what, "Copy again: it goes on there.") from None


def _fail(waiting: asyncio.Future[Any], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)


def _settle(waiting: asyncio.Future[Any] | None, value: object) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(value)
