"""What goes over a link for the bytes of a model: a run of blocks is asked for, and comes with the hash of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import msgspec

from core.errors import ProtocolError
from core.link.frames import Buffer
from core.models.files.block_map import BLOCK_BYTES, FileFacts
from core.node.base.node_message import FileName
from core.node.disks.messages import NOT_HERE
from core.numbers import Size

MAX_RUN: Final = 16
HASH_BYTES: Final = len(NOT_HERE)
RUN_BYTES: Final = MAX_RUN * (HASH_BYTES + BLOCK_BYTES)


class RunRequest(msgspec.Struct, frozen=True, array_like=True):
    """`count` blocks of a file, from block `first` on. The answer is the hash of each, NOT_HERE for one that is not
    there any more, and behind all hashes the bytes of the others.
    """

    name: FileName
    first: Size
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_RUN)]


class BlockSent(NamedTuple):
    """A block that came; `sha256` is what its sender says that it has to hold."""

    number: int
    sha256: bytes
    data: memoryview


_asks = msgspec.msgpack.Decoder(RunRequest)


def read_ask(body: Buffer) -> RunRequest:
    """Raises ProtocolError."""
    try:
        return _asks.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError("A request for blocks does not decode.") from error


def blocks_in(run: RunRequest, facts: FileFacts, body: memoryview) -> Iterator[BlockSent]:
    """The blocks of an answer that are there. Raises ProtocolError where it is not as long as it has to be."""
    hashes, rest = body[: run.count * HASH_BYTES], body[run.count * HASH_BYTES :]
    for index in range(run.count):
        sha256 = bytes(hashes[index * HASH_BYTES :][:HASH_BYTES])
        if sha256 != NOT_HERE:
            length = facts.length(run.first + index)
            if len(sha256) != HASH_BYTES or len(rest) < length:
                raise ProtocolError("Blocks came that are not what was asked for.")
            yield BlockSent(run.first + index, sha256, rest[:length])
            rest = rest[length:]
    if rest:
        raise ProtocolError("More came than was asked for.")
