"""The end of a link for bytes at which blocks leave: a door for one Mac, and a thread that answers it in order."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from core.errors import LinkLost, MaclusterError, ProtocolError
from core.link.channel import Alarm, Receiver
from core.link.frames import FrameType
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts
from core.models.files.compared_hashes import Compared
from core.node.base.tasks import Tasks
from core.node.disks.block_runs import HASH_BYTES, RUN_BYTES, RunRequest, read_ask
from core.node.disks.byte_links import ByteLinks
from core.node.disks.messages import NOT_HERE, BytesAsk


class Served(NamedTuple):
    """A model that another Mac is copying: its directory, its files, and which blocks are there, None for all. `known`:
    the hashes of the blocks as they were written, where macluster has written them; else they go to `hashed` as they
    are read, for each file those of all its blocks one after the other, zeros for one that nobody has read yet.
    `compared`: where not all are there, the hashes of all blocks of those files that were compared with the hub's.
    `notes`: size, time of the last change and inode of each file, as it was hashed.
    """

    directory: Path
    files: Mapping[str, FileFacts]
    there: BlockMap | None
    known: BlockMap | None
    compared: Compared
    notes: Mapping[str, tuple[int, int, int]]
    hashed: Mapping[str, bytearray]

    def has(self, name: str, block: int) -> bool:
        """Whether that block is there."""
        return self.there is None or block in self.there.hashes[name]

    def sha256(self, name: str, block: int, data: memoryview) -> bytes:
        """Of a block that is there, and was just read as `data`: what it held before, where that is known, as to hash
        it takes as long as to seal it. Where the disk gives something else by now, whoever gets it sees that.
        """
        if self.known:
            return self.known.hashes[name][block]
        place = slice(block * HASH_BYTES, (block + 1) * HASH_BYTES)
        if (found := bytes(self.hashed[name][place])) == NOT_HERE:
            found = self.hashed[name][place] = hashlib.sha256(data).digest()
        return found


def note_of(status: os.stat_result) -> tuple[int, int, int]:
    """By which it is seen that a file was written."""
    return status.st_size, status.st_ctime_ns, status.st_ino


class BlockDoor:
    """Open until that Mac is gone, or this is closed. Raises LinkLost where this Mac cannot listen."""

    def __init__(self, links: ByteLinks, device_id: str, asked: BytesAsk, served: Served, tasks: Tasks) -> None:
        self._links, self._device_id, self._asked, self.served = links, device_id, asked, served
        self._listener = links.listen()
        self.port: int = self._listener.getsockname()[1]
        self._bell, self._rung = socket.socketpair()
        self._receiver: Receiver | None = None
        self._is_closed = False
        self._thread = tasks.thread("Giving blocks of a model", self._answer)

    @property
    def is_open(self) -> bool:
        """Whether anybody may still ask here."""
        return self._thread.is_alive() and not self._is_closed

    def is_of(self, fingerprint: str) -> bool:
        """Whether it gives blocks of that model."""
        return self._asked.fingerprint == fingerprint

    def close(self) -> None:
        """Nothing more is given."""
        self._is_closed = True
        self._bell.close()
        if self._receiver:
            self._receiver.shut()

    def _answer(self) -> None:
        with suppress(MaclusterError, OSError), ExitStack() as stack:
            for end in (self._rung, self._bell):
                stack.callback(end.close)
            with self._listener:
                link = self._links.accept(
                    self._listener, self._device_id, self._asked, Alarm(self._rung.fileno(), _closed)
                )
            self._receiver, sender = link.receiver(), link.sender()
            stack.callback(self._receiver.close)
            answers = SourceAnswers(self.served, stack.callback)
            while not self._is_closed:
                frame = self._receiver.recv(None)
                if frame.header.type is not FrameType.COPY:
                    raise ProtocolError(f"Frame 0x{frame.header.type:02x} came where a request for blocks was due.")
                sender.send(FrameType.FILE_PART, parts=[answers.of(read_ask(frame.body))])


class SourceAnswers:
    """What this Mac's disk has of the files of one model. `at_end` is told what to do when all is given."""

    def __init__(self, served: Served, at_end: Callable[[Callable[[], object]], object]) -> None:
        self._served, self._at_end = served, at_end
        self._open: dict[str, int] = {}
        self._room = memoryview(bytearray(RUN_BYTES))

    def of(self, run: RunRequest) -> memoryview:
        """The hashes of its blocks and then their bytes, valid until the next one. A file that was written since it was
        hashed has none. Raises ProtocolError for a run that is in no file, OSError.
        """
        facts = self._served.files.get(run.name)
        if facts is None or run.first + run.count > len(facts.blocks):
            raise ProtocolError(f"Blocks were asked for that {run.name!r:.80} does not have.")
        fd, end = self._file(run.name), run.count * HASH_BYTES
        is_same = note_of(os.fstat(fd)) == self._served.notes[run.name] if self._served.there is None else True
        for index in range(run.count):
            block, length, sha256 = run.first + index, facts.length(run.first + index), NOT_HERE
            if is_same and self._served.has(run.name, block):
                data = self._room[end : end + length]
                if os.preadv(fd, [data], block * BLOCK_BYTES) == length:
                    sha256 = self._served.sha256(run.name, block, data)
                    end += length
            self._room[index * HASH_BYTES : (index + 1) * HASH_BYTES] = sha256
        return self._room[:end]

    def _file(self, name: str) -> int:
        if name not in self._open:
            fd = self._open[name] = os.open(self._served.directory / name, os.O_RDONLY | os.O_CLOEXEC)
            self._at_end(lambda: os.close(fd))
        return self._open[name]


def _closed() -> NoReturn:
    raise LinkLost("The door for the bytes of a model was closed.")
