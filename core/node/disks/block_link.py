"""The end of a link for bytes at which blocks arrive: a thread that asks for runs and reads what comes, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

import msgspec

from core.errors import LinkLost, MaclusterError, ProtocolError
from core.link.channel import DataLink
from core.link.frames import FrameType
from core.node.base.tasks import Tasks
from core.node.disks.block_runs import RunRequest

ANSWER_S: Final = 30.0


class _AskedRun(NamedTuple):
    run: RunRequest
    answer: asyncio.Future[memoryview]


class BlockLink:
    """Asked by tasks of the event loop in which it was made, several at a time."""

    def __init__(self, link: DataLink, tasks: Tasks) -> None:
        self._loop = asyncio.get_running_loop()
        self._sender, self._receiver = link.sender(), link.receiver()
        self._asks: SimpleQueue[_AskedRun | None] = SimpleQueue()
        self._spare: deque[bytearray] = deque()  # new memory for each answer takes longer than to copy it
        self._ended: MaclusterError | None = None
        tasks.thread("Fetching blocks of a model", self._work)

    @property
    def is_closed(self) -> bool:
        """Whether nothing comes by it any more."""
        return self._ended is not None

    async def ask(self, run: RunRequest) -> memoryview:
        """What comes for `run`. Raises LinkError, and this is of no more use then."""
        asked = _AskedRun(run, self._loop.create_future())
        self._asks.put(asked)
        if self._ended:  # the thread may have looked for the last time already
            raise self._ended
        return await asked.answer

    def give_back(self, answer: memoryview) -> None:
        """Nobody looks at it any more: another answer may lie there."""
        assert isinstance(answer.obj, bytearray)
        self._spare.append(answer.obj)

    def close(self, why: MaclusterError | None = None) -> None:
        """End it; who waits for an answer is told `why`."""
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
                    raise ProtocolError(f"Frame 0x{frame.header.type:02x} came where blocks were due.")
                self._receiver.leave_body(self._spare.pop() if self._spare else None)
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
        """Send what was asked meanwhile, and wait for it only where no answer is due. False where this is closed."""
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

    def _settle_soon(self, asked: _AskedRun, said: memoryview | MaclusterError) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, asked.answer, said)
        except RuntimeError:
            return  # the node has ended


def _settle(answer: asyncio.Future[memoryview], said: memoryview | MaclusterError) -> None:
    if answer.done():
        return
    if isinstance(said, MaclusterError):
        answer.set_exception(said)
    else:
        answer.set_result(said)
