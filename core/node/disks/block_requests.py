"""Requests the files of a model from other Macs: their list, the hashes of their blocks, and the blocks."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from core.errors import LinkLost, LinkTimeout, MaclusterError, ProtocolError, TransferError
from core.link.data_plane import DataLink
from core.link.frames import FrameType
from core.node.base.node_message import NodeMessage
from core.node.base.tasks import Tasks
from core.node.disks.byte_links import ByteLinks, RunRequest
from core.node.disks.mac_messages import MessageSender
from core.node.disks.messages import BytesReady, BytesRequest, FilesRequest, FilesSent, HashesRequest, HashesSent

PORT_S: Final = 30.0
HASHES_S: Final = 120.0  # the sender may have to read 128 MiB
LIST_S: Final = 900.0  # the sender may have to hash the whole model
ANSWER_S: Final = 30.0

_T = TypeVar("_T")


class BlockRequests:
    """Sends requests to Macs; each method waits for the response. Raises LinkLost, LinkTimeout."""

    def __init__(self, sender: MessageSender, links: ByteLinks, tasks: Tasks) -> None:
        self._sender, self._links, self._tasks = sender, links, tasks
        self._numbers = count(1)
        # by Mac and the response's fingerprint or number
        self._waiting: dict[tuple[str, str | int], asyncio.Future[Any]] = {}
        self._open: list[tuple[str, BlockLink]] = []

    def settle(self, device_id: str, message: FilesSent | HashesSent | BytesReady) -> None:
        """Take a response; ignores one that was not requested."""
        key = message.fingerprint if isinstance(message, FilesSent) else message.number
        waiting = self._waiting.get((device_id, key))
        if waiting and not waiting.done():
            waiting.set_result(message)

    def gone(self, device_id: str) -> None:
        """Fail the requests to a Mac that is no longer linked."""
        lost = LinkLost("The Mac that has the model is gone.", "Copy again when it is back; the copy resumes.")
        for (source, _), waiting in self._waiting.items():
            if source == device_id and not waiting.done():
                waiting.set_exception(lost)
        for source, link in self._open:
            if source == device_id:
                link.close(lost)

    async def files(self, source: str, fingerprint: str) -> FilesSent:
        sent: FilesSent = await self._ask(source, fingerprint, FilesRequest(fingerprint=fingerprint), LIST_S)
        return sent

    async def hashes(self, source: str, fingerprint: str, name: str, first: int, *, compared: bool = False) -> bytes:
        """32 bytes per block, from block `first` on. `compared`: from the file compared with the hub's hash."""
        number = next(self._numbers)
        asked = HashesRequest(number=number, fingerprint=fingerprint, name=name, first=first, compared=compared)
        sent: HashesSent = await self._ask(source, number, asked, HASHES_S)
        return sent.data

    async def link(self, source: str, fingerprint: str) -> BlockLink:
        """Open a link for the blocks of that model. Raises LinkError, TransferError."""
        self._open = [(mac, link) for mac, link in self._open if not link.is_closed]
        number = next(self._numbers)
        asked = BytesRequest(number=number, fingerprint=fingerprint)
        ready: BytesReady = await self._ask(source, number, asked, PORT_S)
        if ready.port is None:
            problem = ready.problem or TransferError("The other Mac doesn't send the model.").problem
            raise TransferError(problem.what, problem.fix)
        ways = self._links.ways(source)
        sealed = await asyncio.to_thread(self._links.dial, source, ways, ready.port, asked)
        link = BlockLink(sealed, self._tasks)
        self._open.append((source, link))
        return link

    async def _ask(self, source: str, key: str | int, request: NodeMessage, seconds: float) -> Any:
        waiting: asyncio.Future[Any]
        waiting = self._waiting[source, key] = asyncio.get_running_loop().create_future()
        try:
            if not await self._sender.send(source, request):
                raise LinkLost("The Mac that has the model is not linked.", "Wait until it is back, then copy again.")
            return await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            raise LinkTimeout("The Mac that has the model doesn't respond.", "Copy again; the copy resumes.") from None
        finally:
            del self._waiting[source, key]


class _AskedRun(NamedTuple):
    run: RunRequest
    answer: asyncio.Future[memoryview]


class BlockLink:
    """Receiving end of a link for blocks: a thread sends requests and reads the responses in order.

    Tasks of its event loop may request several runs at a time.
    """

    def __init__(self, link: DataLink, tasks: Tasks) -> None:
        self._loop = asyncio.get_running_loop()
        self._sender, self._receiver = link.sender(), link.receiver()
        self._asks: SimpleQueue[_AskedRun | None] = SimpleQueue()
        self._buffers: deque[bytearray] = deque()  # reused, because allocation takes longer than filling
        self._ended: MaclusterError | None = None
        tasks.thread("Fetching blocks of a model", self._work)

    @property
    def is_closed(self) -> bool:
        return self._ended is not None

    async def ask(self, run: RunRequest) -> memoryview:
        """Response to `run`. Raises LinkError, and closes the link then."""
        asked = _AskedRun(run, self._loop.create_future())
        self._asks.put(asked)
        if self._ended:  # the thread may not look again
            raise self._ended
        return await asked.answer

    def give_back(self, answer: memoryview) -> None:
        """Reuse the memory of this response for another one."""
        assert isinstance(answer.obj, bytearray)
        self._buffers.append(answer.obj)

    def close(self, why: MaclusterError | None = None) -> None:
        """Close the link; waiting requests fail with `why`."""
        self._ended = self._ended or why or LinkLost("The link for the bytes of the model was closed.")
        self._asks.put(None)
        self._receiver.shut()

    def _work(self) -> None:
        waiting: deque[_AskedRun] = deque()
        error: MaclusterError | None = None
        try:
            while self._send_asked(waiting):
                frame = self._receiver.recv(ANSWER_S)
                if frame.header.type is not FrameType.FILE_PART:
                    raise ProtocolError(f"Frame 0x{frame.header.type:02x} came instead of blocks.")
                self._receiver.leave_body(self._buffers.pop() if self._buffers else None)
                self._settle_soon(waiting.popleft(), frame.body)
        except MaclusterError as failed:
            error = failed
        finally:
            self._receiver.close()
            self._ended = self._ended or error or LinkLost("The link for the bytes of the model was closed.")
            while asked := self._next(wait=False):
                waiting.append(asked)
            for asked in waiting:
                self._settle_soon(asked, self._ended)

    def _send_asked(self, waiting: deque[_AskedRun]) -> bool:
        """Send new requests; wait for one only if no response is due. False when the link is closed."""
        while not (self._ended and not waiting):
            asked = self._next(wait=not waiting)
            if asked is None:
                return bool(waiting) and not self._ended
            waiting.append(asked)
            self._sender.send(FrameType.COPY, parts=[msgspec.msgpack.encode(asked.run)])
        return False

    def _next(self, *, wait: bool) -> _AskedRun | None:
        try:
            return self._asks.get(block=wait)
        except Empty:
            return None

    def _settle_soon(self, asked: _AskedRun, answer: memoryview | MaclusterError) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, asked.answer, answer)
        except RuntimeError:
            return  # the node has ended


def _settle(waiting: asyncio.Future[memoryview], answer: memoryview | MaclusterError) -> None:
    if waiting.done():
        return
    if isinstance(answer, MaclusterError):
        waiting.set_exception(answer)
    else:
        waiting.set_result(answer)
