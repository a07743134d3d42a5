"""Sealed links that carry only model bytes, so that control links stay free for heartbeats and tokens.

A Mac opens a port for one link of one other Mac, which sends requests in COPY frames. Each response is a FILE_PART
frame. For a run of blocks: the SHA-256 of every block (NOT_HERE for a missing one), then the bytes of the other blocks.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Annotated, Final, NamedTuple

import msgspec

from core.errors import LinkLost, ProtocolError
from core.link.data_plane import Alarm, DataLink, Receiver, accept, dial, listen
from core.link.frames import Buffer, FrameType
from core.link.network_paths import NetworkPath, connect
from core.models.files.block_map import BLOCK_BYTES, HASH_BYTES, FileFacts, hash_at
from core.node.base.node_message import FileName
from core.node.disks.messages import MAX_MODEL_FILES, BytesRequest
from core.numbers import Size
from core.trust.identity import Identity, parse_text_id
from core.trust.roster.bundle import Cluster

LINK_S: Final = 15.0
MAX_RUN: Final = 16
MAX_HASHES: Final = 512
NOT_HERE: Final = bytes(HASH_BYTES)
RUN_BYTES: Final = MAX_RUN * (HASH_BYTES + BLOCK_BYTES)


class FileList(msgspec.Struct, frozen=True):
    """The files of a model by name; `is_whole`: all are complete."""

    files: Annotated[dict[FileName, FileFacts], msgspec.Meta(max_length=MAX_MODEL_FILES)]
    is_whole: bool


class ListRequest(msgspec.Struct, frozen=True, array_like=True, tag="ListRequest"):
    """Requests the FileList."""


class RunRequest(msgspec.Struct, frozen=True, array_like=True, tag="RunRequest"):
    """Requests `count` blocks of a file, from block `first` on."""

    name: FileName
    first: Size
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUN)]


class HashesRequest(msgspec.Struct, frozen=True, array_like=True, tag="HashesRequest"):
    """Requests the SHA-256 of up to MAX_HASHES blocks of a file, from block `first` on; NOT_HERE for a missing one.

    `compared`: of all blocks, missing ones too, as compared with the hub's hash; nothing for an uncompared file.
    """

    name: FileName
    first: Size
    compared: bool


LinkRequest = ListRequest | RunRequest | HashesRequest


class ReceivedBlock(NamedTuple):
    """A block of a run, with the SHA-256 claimed by its sender."""

    number: int
    sha256: bytes
    data: memoryview


_requests: msgspec.msgpack.Decoder[LinkRequest] = msgspec.msgpack.Decoder(LinkRequest)


def read_request(body: Buffer) -> LinkRequest:
    try:
        return _requests.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError("A request for blocks does not decode.") from error


def read_list(body: Buffer) -> FileList:
    try:
        return msgspec.msgpack.decode(body, type=FileList)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError("A list of files does not decode.") from error


def receive(receiver: Receiver, kind: FrameType, timeout_s: float | None) -> memoryview:
    """Body of the next frame, which has to be of type `kind`. Raises LinkError."""
    frame = receiver.recv(timeout_s)
    if frame.header.type is not kind:
        raise ProtocolError(f"Frame 0x{frame.header.type:02x} came on a link for blocks.")
    return frame.body


def blocks_in(run: RunRequest, facts: FileFacts, body: memoryview) -> Iterator[ReceivedBlock]:
    """Yield the blocks in a response. Raises ProtocolError if its length is wrong."""
    hashes, rest = body[: run.count * HASH_BYTES], body[run.count * HASH_BYTES :]
    for index in range(run.count):
        sha256 = hash_at(hashes, index)
        if sha256 != NOT_HERE:
            length = facts.length(run.first + index)
            if len(sha256) != HASH_BYTES or len(rest) < length:
                raise ProtocolError("The received blocks are not the requested ones.")
            yield ReceivedBlock(run.first + index, sha256, rest[:length])
            rest = rest[length:]
    if rest:
        raise ProtocolError("More bytes arrived than requested.")


class ByteLinks:
    """Opens both ends of these links: the receiver dials, the sender listens on `host`. Thread-safe.

    `paths` returns the network paths to a linked Mac, empty if it isn't linked.
    """

    def __init__(
        self,
        identity: Identity,
        cluster: Callable[[], Cluster],
        paths: Callable[[str], Sequence[NetworkPath]],
        host: str,
    ) -> None:
        self._identity, self._cluster, self._paths, self._host = identity, cluster, paths, host

    def listen(self) -> socket.socket:
        return listen(self._host)

    def ways(self, device_id: str) -> tuple[NetworkPath, ...]:
        """Network paths to a Mac. Raises LinkLost if there are no paths."""
        if not (ways := tuple(self._paths(device_id))):
            raise LinkLost("The Mac that has the model is not linked.", "Wait until it is back, then copy again.")
        return ways

    def accept(self, listener: socket.socket, device_id: str, asked: BytesRequest, alarm: Alarm) -> DataLink:
        """Accept the link that a Mac dials for its request. Raises LinkError, and errors of `alarm`."""
        return accept(
            listener,
            identity=self._identity,
            cluster=self._cluster(),
            peer_id=self._id_of(device_id),
            binding=_binding(asked),
            timeout_s=LINK_S,
            alarm=alarm,
        )

    def dial(self, device_id: str, ways: Sequence[NetworkPath], port: int, asked: BytesRequest) -> DataLink:
        """Dial the port that a Mac opened for `asked`. Raises LinkError."""
        until = monotonic() + LINK_S
        plain, way = connect(ways, port, LINK_S)
        return dial(
            way.host,
            port,
            identity=self._identity,
            cluster=self._cluster(),
            peer_id=self._id_of(device_id),
            binding=_binding(asked),
            timeout_s=until - monotonic(),
            plain=plain,
        )

    def _id_of(self, device_id: str) -> bytes:
        return parse_text_id(device_id)


def _binding(asked: BytesRequest) -> bytes:
    return hashlib.sha256(b"macluster/1 blocks\0" + msgspec.json.encode(asked)).digest()
