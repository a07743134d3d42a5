"""Serves this Mac's models to linked Macs: file lists, block hashes, and blocks over separate links."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from core.errors import BadModel, LinkLost, MaclusterError, ProtocolError, TransferError
from core.link.data_plane import Alarm, Receiver
from core.link.frames import FrameType
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts, read_map, read_written
from core.models.files.compared_hashes import Compared, read_compared
from core.node.base.node_message import to_frame
from core.node.base.tasks import Tasks
from core.node.disks.byte_links import HASH_BYTES, RUN_BYTES, ByteLinks, RunRequest, read_run_request
from core.node.disks.local_models import LocalModels
from core.node.disks.mac_messages import LatestRequest, MessageSender
from core.node.disks.messages import (
    MAX_HASHES,
    NOT_HERE,
    BytesReady,
    BytesRequest,
    FilesSent,
    HashesRequest,
    HashesSent,
)
from core.settings import MAX_CONTROL_BODY

# per Mac
MAX_ANSWERING: Final = 4
MAX_QUEUED: Final = 16
MAX_PORTS: Final = 4


class ServedModel(NamedTuple):
    """A model that another Mac is copying from this one."""

    directory: Path
    files: Mapping[str, FileFacts]
    there: BlockMap | None  # blocks on this disk; None: complete
    compared: Compared  # for a partial model: block hashes of files compared with the hub's
    stamps: Mapping[str, tuple[int, int, int]]  # `stamp_of` each file when it was hashed
    hashes: Mapping[str, bytearray]  # 32 bytes per block; NOT_HERE if not read yet

    def has(self, name: str, block: int) -> bool:
        return self.there is None or block in self.there.hashes[name]

    def sha256(self, name: str, block: int, data: memoryview) -> bytes:
        """Hash of a block just read as `data`: the known one if any, because hashing takes as long as sealing. The
        receiver detects a difference.
        """
        place = slice(block * HASH_BYTES, (block + 1) * HASH_BYTES)
        if (known := bytes(self.hashes[name][place])) == NOT_HERE:
            known = self.hashes[name][place] = hashlib.sha256(data).digest()
        return known


def stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    """Size, change time and inode of a file: a value that changes when it is written."""
    return status.st_size, status.st_ctime_ns, status.st_ino


class FileServing:
    """Responds to each Mac with one list at a time and a few hash requests at once."""

    def __init__(self, models: LocalModels, sender: MessageSender, links: ByteLinks, tasks: Tasks) -> None:
        self._models, self._sender, self._links, self._tasks = models, sender, links, tasks
        self._ports: dict[str, deque[BlockPort]] = {}
        self._served: dict[tuple[str, str], ServedModel] = {}
        self._last: ServedModel | None = None
        self._lists = LatestRequest(self._send_files)
        self._queued: dict[str, deque[HashesRequest]] = {}
        self._answering: Counter[str] = Counter()

    def gone(self, device_id: str) -> None:
        self._lists.forget(device_id)
        for port in self._ports.pop(device_id, ()):
            port.close()
        for key in [key for key in self._served if key[0] == device_id]:
            del self._served[key]

    def forget(self, fingerprint: str) -> None:
        """Forget a model whose files are about to change: copying Macs must request the list again."""
        for device_id in [mac for mac, served in self._served if served == fingerprint]:
            del self._served[device_id, fingerprint]
            for port in self._ports.get(device_id, ()):
                if port.fingerprint == fingerprint:
                    port.close()

    async def send_files(self, device_id: str, fingerprint: str) -> None:
        """Send the list of a model's files, after hashing them if needed."""
        await self._lists.take(device_id, fingerprint)

    async def _send_files(self, device_id: str, fingerprint: str) -> None:
        try:
            directory = await self._models.find_same("", fingerprint)
            hashes = await self._models.manifest(directory)
            served = self._last = await asyncio.to_thread(served_model, directory, hashes, self._last)
            reply = FilesSent(fingerprint=fingerprint, files=dict(served.files), is_whole=served.there is None)
            if len(to_frame(reply)[1]) > MAX_CONTROL_BODY:
                raise TransferError(f"{directory.name} has {len(hashes)} files, too many to copy.", "Copy it by hand.")
            self._served[device_id, fingerprint] = served
        except MaclusterError as error:
            reply = FilesSent(fingerprint=fingerprint, problem=error.problem)
        if not await self._sender.send(device_id, reply):
            self._served.pop((device_id, fingerprint), None)

    async def send_hashes(self, device_id: str, request: HashesRequest) -> None:
        """Send block hashes. Limits the memory of responses that a Mac doesn't read."""
        queued = self._queued.setdefault(device_id, deque())
        if len(queued) < MAX_QUEUED:
            queued.append(request)
        if self._answering[device_id] == MAX_ANSWERING:
            return
        self._answering[device_id] += 1
        try:
            while queued:
                request = queued.popleft()
                served = self._served.get((device_id, request.fingerprint))
                if served and request.name in served.files:
                    data = await asyncio.to_thread(_hashes, served, request)
                    await self._sender.send(device_id, HashesSent(number=request.number, data=data))
        finally:
            self._answering[device_id] -= 1

    async def open_port(self, device_id: str, request: BytesRequest) -> None:
        """Open a port for blocks of a listed model, closing the oldest beyond the limit."""
        if served := self._served.get((device_id, request.fingerprint)):
            reply = self._opened(device_id, request, served)
        else:
            problem = TransferError("That Mac was not asked which files the model has.", "Copy again.").problem
            reply = BytesReady(number=request.number, problem=problem)
        await self._sender.send(device_id, reply)

    def _opened(self, device_id: str, request: BytesRequest, served: ServedModel) -> BytesReady:
        ports = self._ports.setdefault(device_id, deque())
        if len(ports) == MAX_PORTS:
            ports.popleft().close()
        try:
            port = BlockPort(self._links, device_id, request, served, self._tasks)
        except LinkLost as error:
            return BytesReady(number=request.number, problem=error.problem)
        ports.append(port)
        return BytesReady(number=request.number, port=port.port)


class BlockPort:
    """A port for one link of one Mac, and its thread. Raises LinkLost if this Mac cannot listen."""

    def __init__(
        self, links: ByteLinks, device_id: str, asked: BytesRequest, served: ServedModel, tasks: Tasks
    ) -> None:
        self._links, self._device_id, self._asked, self._served = links, device_id, asked, served
        self.fingerprint = asked.fingerprint
        self._listener = links.listen()
        self.port: int = self._listener.getsockname()[1]
        self._bell, self._rung = socket.socketpair()
        self._receiver: Receiver | None = None
        self._is_closed = False
        self._thread = tasks.thread("Giving blocks of a model", self._answer)

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive() and not self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._bell.close()
        if self._receiver:
            self._receiver.shut()

    def _answer(self) -> None:
        with suppress(MaclusterError, OSError), ExitStack() as stack:
            for end in (self._rung, self._bell):
                stack.callback(end.close)
            with self._listener:
                alarm = Alarm(self._rung.fileno(), _closed)
                link = self._links.accept(self._listener, self._device_id, self._asked, alarm)
            self._receiver, sender = link.receiver(), link.sender()
            stack.callback(self._receiver.close)
            reader = stack.enter_context(closing(BlockReader(self._served)))
            while not self._is_closed:
                frame = self._receiver.recv(None)
                if frame.header.type is not FrameType.COPY:
                    raise ProtocolError(f"Frame 0x{frame.header.type:02x} came instead of a request for blocks.")
                sender.send(FrameType.FILE_PART, parts=[reader.read(read_run_request(frame.body))])


class BlockReader:
    """Reads blocks of one model from this disk, in the form in which they are sent."""

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._open: dict[str, int] = {}
        self._buffer = memoryview(bytearray(RUN_BYTES))

    def read(self, run: RunRequest) -> memoryview:
        """The hashes of the blocks, then their bytes; valid until the next call. A file changed since it was hashed has
        no blocks. Raises ProtocolError for a run outside the model, OSError.
        """
        served, facts = self._served, self._served.files.get(run.name)
        if facts is None or run.first + run.count > len(facts.blocks):
            raise ProtocolError(f"Blocks were requested that {run.name!r:.80} does not have.")
        fd, end = self._file(run.name), run.count * HASH_BYTES
        is_same = served.there is not None or stamp_of(os.fstat(fd)) == served.stamps[run.name]
        for index in range(run.count):
            block, length, sha256 = run.first + index, facts.length(run.first + index), NOT_HERE
            if is_same and served.has(run.name, block):
                data = self._buffer[end : end + length]
                if os.preadv(fd, [data], block * BLOCK_BYTES) == length:
                    sha256 = served.sha256(run.name, block, data)
                    end += length
            self._buffer[index * HASH_BYTES : (index + 1) * HASH_BYTES] = sha256
        return self._buffer[:end]

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)

    def _file(self, name: str) -> int:
        if name not in self._open:
            self._open[name] = os.open(self._served.directory / name, os.O_RDONLY | os.O_CLOEXEC)
        return self._open[name]


def served_model(directory: Path, sha256s: Mapping[str, str], last: ServedModel | None = None) -> ServedModel:
    """The model in `directory`, with SHA-256 by file. Block hashes come from macluster's map, or from `last`, the
    previously served value, for unchanged files.
    """
    status = {name: (directory / name).stat() for name in sha256s}
    files = {name: FileFacts(size=status[name].st_size, sha256=sha256) for name, sha256 in sha256s.items()}
    there, stamps = read_map(directory), {name: stamp_of(each) for name, each in status.items()}
    hashes: Mapping[str, bytearray]
    if last and there is None and (last.directory, last.files, last.stamps) == (directory, files, stamps):
        hashes = last.hashes
    else:
        hashes = {name: bytearray(HASH_BYTES * len(facts.blocks)) for name, facts in files.items()}
        known = (there or _whole_map(directory, files) or BlockMap(files, {})).hashes
        for name, block, sha256 in ((name, *each) for name, blocks in known.items() for each in blocks.items()):
            hashes[name][block * HASH_BYTES : (block + 1) * HASH_BYTES] = sha256
    return ServedModel(directory, files, there, read_compared(directory, files), stamps, hashes)


def _whole_map(directory: Path, files: Mapping[str, FileFacts]) -> BlockMap | None:
    """Map of a complete model written by macluster, unless its files were replaced."""
    with suppress(BadModel):
        found = read_written(directory)
        return found if found and found.files == files and not found.missing_bytes else None
    return None


def _hashes(served: ServedModel, request: HashesRequest) -> bytes:
    """32 bytes per block from `first` on, for up to MAX_HASHES blocks."""
    name, blocks = request.name, served.files[request.name].blocks[request.first : request.first + MAX_HASHES]
    place = slice(HASH_BYTES * blocks.start, HASH_BYTES * blocks.stop)
    if served.there is not None:
        return served.compared.get(name, b"")[place] if request.compared else bytes(served.hashes[name][place])
    with suppress(OSError), (served.directory / name).open("rb") as content:
        for block in blocks:
            if not any(served.hashes[name][block * HASH_BYTES : (block + 1) * HASH_BYTES]):
                content.seek(block * BLOCK_BYTES)
                served.sha256(name, block, memoryview(content.read(BLOCK_BYTES)))
    return bytes(served.hashes[name][place])


def _closed() -> NoReturn:
    raise LinkLost("The port for the bytes of a model was closed.")
