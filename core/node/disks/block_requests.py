"""Links for the blocks of models on other Macs: their files, the hashes of their blocks, and the blocks."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

import msgspec

from core.errors import LinkLost, LinkTimeout, MaclusterError, ProtocolError, TransferError
from core.link.data_plane import DataLink
from core.link.frames import FrameType
from core.models.files.block_map import HASH_BYTES
from core.node.base.tasks import Tasks
from core.node.disks import byte_links
from core.node.disks.messages import BytesReady, BytesRequest
from core.node.peers.mesh import Mesh

PORT_S: Final = 900.0  # the sender may have to hash the whole model
HASHES_S: Final = 120.0  # the sender may have to read 128 MiB
ANSWER_S: Final = 30.0


class BlockRequests:
    """Opens links to the Macs that have a model."""

    def __init__(self, sender: Mesh, links: byte_links.ByteLinks, tasks: Tasks) -> None:
        self._sender, self._links, self._tasks = sender, links, tasks
        self._numbers = count(1)
        self._waiting: dict[tuple[str, int], asyncio.Future[BytesReady]] = {}  # by Mac and number
        self._open: list[tuple[str, BlockLink]] = []

    def settle(self, device_id: str, message: BytesReady) -> None:
        """Take a response; ignores one that was not requested."""
        waiting = self._waiting.get((device_id, message.number))
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

    async def link(self, source: str, fingerprint: str) -> BlockLink:
        """Open a link for the blocks of that model. Raises LinkError, TransferError."""
        self._open = [(mac, link) for mac, link in self._open if not link.is_closed]
        asked = BytesRequest(number=next(self._numbers), fingerprint=fingerprint)
        ready = await self._ask(source, asked)
        if ready.port is None:
            problem = ready.problem or TransferError("It gives no reason.").problem
            raise TransferError(f"The other Mac can't send it: {problem.what}", problem.fix)
        ways = self._links.ways(source)
        link = BlockLink(await asyncio.to_thread(self._links.dial, source, ways, ready.port, asked), self._tasks)
        self._open.append((source, link))
        return link

    async def _ask(self, source: str, request: BytesRequest) -> BytesReady:
        waiting = self._waiting[source, request.number] = asyncio.get_running_loop().create_future()
        try:
            if not await self._sender.send(source, request):
                raise LinkLost("The Mac that has the model is not linked.", "Wait until it is back, then copy again.")
            return await asyncio.wait_for(waiting, PORT_S)
        except TimeoutError:
            raise LinkTimeout("The Mac that has the model doesn't respond.", "Copy again; the copy resumes.") from None
        finally:
            del self._waiting[source, request.number]


class _OpenRequest(NamedTuple):
    request: byte_links.LinkRequest
    answer: Future[memoryview]


class BlockLink:
    """Receiving end of a link for blocks: a thread sends requests and reads the responses in order.

    Tasks of its event loop may send several requests at a time.
    """

    def __init__(self, link: DataLink, tasks: Tasks) -> None:
        self._sender, self._receiver = link.sender(), link.receiver()
        self._files: byte_links.FileList | None = None
        self._asks: SimpleQueue[_OpenRequest | None] = SimpleQueue()
        self._buffers: deque[bytearray] = deque()  # reused, because allocation takes longer than filling
        self._ended: MaclusterError | None = None
        tasks.thread("Fetching blocks of a model", self._work)

    @property
    def is_closed(self) -> bool:
        return self._ended is not None

    async def ask(self, request: byte_links.LinkRequest) -> memoryview:
        """Response to a request. Raises LinkError, and closes the link then."""
        asked = _OpenRequest(request, Future())
        self._asks.put(asked)
        if self._ended:  # the thread may not look again
            raise self._ended
        return await asyncio.wrap_future(asked.answer)

    async def files(self) -> byte_links.FileList:
        """The model's files there, asked for once. Raises LinkError."""
        self._files = self._files or byte_links.read_list(await self.ask(byte_links.ListRequest()))
        return self._files

    async def hashes(self, name: str, first: int, *, compared: bool = False) -> bytes:
        """32 bytes per block, as a HashesRequest asks for. Raises LinkError."""
        hashes = bytes(await self.ask(byte_links.HashesRequest(name, first, compared)))
        if len(hashes) > byte_links.MAX_HASHES * HASH_BYTES:
            raise ProtocolError("More hashes arrived than requested.")
        return hashes

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
        waiting: deque[_OpenRequest] = deque()
        error: MaclusterError | None = None
        try:
            while not self._ended:
                while asked := self._next(wait=not waiting):
                    waiting.append(asked)
                    self._sender.send(FrameType.COPY, parts=[msgspec.msgpack.encode(asked.request)])
                if waiting and not self._ended:
                    seconds = HASHES_S if isinstance(waiting[0].request, byte_links.HashesRequest) else ANSWER_S
                    body = byte_links.receive(self._receiver, FrameType.FILE_PART, seconds)
                    self._receiver.leave_body(self._buffers.pop() if self._buffers else None)
                    waiting.popleft().answer.set_result(body)
        except MaclusterError as failed:
            error = failed
        finally:
            self._receiver.close()
            self._ended = self._ended or error or LinkLost("The link for the bytes of the model was closed.")
            while asked := self._next(wait=False):
                waiting.append(asked)
            for asked in waiting:
                asked.answer.set_exception(self._ended)

    def _next(self, *, wait: bool) -> _OpenRequest | None:
        """The next request that is not cancelled; None when the link is closed or, without `wait`, when none waits."""
        with suppress(Empty):
            while asked := self._asks.get(block=wait):
                if asked.answer.set_running_or_notify_cancel():
                    return asked
        return None
