"""Serves this Mac's models to linked Macs over separate links: file lists, block hashes, and blocks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import msgspec

from core.errors import BadModel, LinkLost, MaclusterError, ProtocolError, TransferError
from core.link.data_plane import Alarm, Receiver
from core.link.frames import Buffer, FrameType
from core.models.files.block_map import BLOCK_BYTES, HASH_BYTES, BlockMap, FileFacts, hash_at, read_map, read_written
from core.models.files.checked_files import name_of
from core.models.files.compared_hashes import Compared, read_compared
from core.node.base.tasks import Tasks
from core.node.disks import byte_links
from core.node.disks.local_models import LocalModels
from core.node.disks.mac_messages import OnePerMac
from core.node.disks.messages import MAX_MODEL_FILES, BytesReady, BytesRequest
from core.node.peers.mesh import Mesh

MAX_PORTS: Final = 4  # per Mac


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

    def sha256(self, name: str, block: int, data: Buffer) -> bytes:
        """Hash of a block just read as `data`: the known one if any, because hashing takes as long as sealing. The
        receiver detects a difference.
        """
        if (known := hash_at(self.hashes[name], block)) == byte_links.NOT_HERE:
            known = hashlib.sha256(data).digest()
            self.hashes[name][block * HASH_BYTES : (block + 1) * HASH_BYTES] = known
        return known


def stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    """Size, change time and inode of a file: a value that changes when it is written."""
    return status.st_size, status.st_ctime_ns, status.st_ino


class FileServing:
    """Opens ports for the models that linked Macs copy; one request of each Mac is answered at a time."""

    def __init__(self, models: LocalModels, sender: Mesh, links: byte_links.ByteLinks, tasks: Tasks) -> None:
        self._models, self._sender, self._links, self._tasks = models, sender, links, tasks
        self._ports: dict[str, deque[BlockPort]] = {}
        self._last: ServedModel | None = None
        self._requests = OnePerMac(self._open_port, MAX_PORTS)
        # opens a port for a link to a model, closing the oldest beyond the limit; hashes the model first if needed
        self.open_port = self._requests.take

    def gone(self, device_id: str) -> None:
        self._requests.forget(device_id)
        for port in self._ports.pop(device_id, ()):
            port.close()

    def forget(self, fingerprint: str) -> None:
        """Forget a model whose files are about to change: copying Macs must open another link."""
        for port in chain.from_iterable(self._ports.values()):
            if port.fingerprint == fingerprint:
                port.close()

    async def _open_port(self, device_id: str, request: BytesRequest) -> None:
        try:
            served = await self._served(device_id, request.fingerprint)
            ports = self._ports.setdefault(device_id, deque())
            if len(ports) == MAX_PORTS:
                ports.popleft().close()
            ports.append(BlockPort(self._links, device_id, request, served, self._tasks))
            reply = BytesReady(number=request.number, port=ports[-1].port)
        except MaclusterError as error:
            reply = BytesReady(number=request.number, problem=error.problem)
        if not await self._sender.send(device_id, reply):
            self.gone(device_id)

    async def _served(self, device_id: str, fingerprint: str) -> ServedModel:
        """The model as an open port of that Mac serves it, else as it is now."""
        for port in self._ports.get(device_id, ()):
            if port.is_open and port.fingerprint == fingerprint:
                return port.served
        directory = await self._models.find_same("", fingerprint)
        hashes = await self._models.manifest(directory)
        if len(hashes) > MAX_MODEL_FILES:
            raise TransferError(f"{name_of(directory)} has {len(hashes)} files, too many to copy.", "Copy it by hand.")
        self._last = await asyncio.to_thread(served_model, directory, hashes, self._last)
        return self._last


class BlockPort:
    """A port for one link of one Mac, and its thread. Raises LinkLost if this Mac cannot listen."""

    def __init__(
        self, links: byte_links.ByteLinks, device_id: str, asked: BytesRequest, served: ServedModel, tasks: Tasks
    ) -> None:
        self._links, self._device_id, self._asked = links, device_id, asked
        self.fingerprint, self.served = asked.fingerprint, served
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
            reader = stack.enter_context(closing(BlockReader(self.served)))
            while not self._is_closed:
                request = byte_links.read_request(byte_links.receive(self._receiver, FrameType.COPY, None))
                sender.send(FrameType.FILE_PART, parts=[reader.answer(request)])


class BlockReader:
    """Reads what is sent of one model from this disk. Raises ProtocolError for what the model doesn't have, OSError."""

    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._open: dict[str, int] = {}
        self._buffer = memoryview(bytearray(byte_links.RUN_BYTES))

    def answer(self, request: byte_links.LinkRequest) -> Buffer:
        match request:
            case byte_links.ListRequest():
                return msgspec.msgpack.encode(byte_links.FileList(dict(self._served.files), self._served.there is None))
            case byte_links.HashesRequest():
                return self.hashes(request)
            case byte_links.RunRequest():
                return self.read(request)

    def hashes(self, request: byte_links.HashesRequest) -> bytes:
        served, name, facts = self._served, request.name, self._facts(request.name, request.first)
        blocks = facts.blocks[request.first : request.first + byte_links.MAX_HASHES]
        place = slice(HASH_BYTES * blocks.start, HASH_BYTES * blocks.stop)
        if request.compared and served.there is not None:
            return served.compared.get(name, b"")[place]
        for block in blocks if served.there is None else ():
            if hash_at(served.hashes[name], block) == byte_links.NOT_HERE:
                served.sha256(name, block, os.pread(self._file(name), facts.length(block), block * BLOCK_BYTES))
        return bytes(served.hashes[name][place])

    def read(self, run: byte_links.RunRequest) -> memoryview:
        """The hashes of the blocks, then their bytes; valid until the next call. A file changed since it was hashed has
        no blocks.
        """
        served, facts = self._served, self._facts(run.name, run.first + run.count)
        fd, end = self._file(run.name), run.count * HASH_BYTES
        is_same = served.there is not None or stamp_of(os.fstat(fd)) == served.stamps[run.name]
        for index in range(run.count):
            block, length, sha256 = run.first + index, facts.length(run.first + index), byte_links.NOT_HERE
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

    def _facts(self, name: str, blocks: int) -> FileFacts:
        facts = self._served.files.get(name)
        if facts is None or blocks > len(facts.blocks):
            raise ProtocolError(f"Blocks were requested that {name!r:.80} does not have.")
        return facts

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


def _closed() -> NoReturn:
    raise LinkLost("The port for the bytes of a model was closed.")
