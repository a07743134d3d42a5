"""Exchange of what the ranks of a tensor plan need for their group: frame 0x07 goes round the ring twice.

The body: port u16 little-endian | session 16, a fresh UUID | the entries of the ranks so far, as MessagePack. In the
first round each rank adds its entry, in the second each reads them all, so no rank continues before all are there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple
from uuid import uuid4

import msgspec

from core.errors import GroupFailed, ProtocolError
from core.link.frames import FrameType
from core.worker.ring import Ring
from core.worker.work_frames import UNREADABLE

COORDINATOR_PORT: Final = 29400
LOWEST_PORT: Final = 1024
TELL_S: Final = 30.0
_HEAD: Final = struct.Struct("<H16s")

MAX_HOSTS: Final = 8
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Host = Annotated[str, msgspec.Meta(pattern=rf"^{_OCTET}(\.{_OCTET}){{3}}\Z", max_length=15)]
Device = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]*\Z", max_length=32)]


class RankEntry(msgspec.Struct, frozen=True, array_like=True):
    """The entry of one rank."""

    # of rank 0 its addresses, of any other rank the ones of these that it reaches
    hosts: Annotated[tuple[Host, ...], msgspec.Meta(max_length=MAX_HOSTS)] = ()
    ports: tuple[Port, Port] = (0, 0)  # where the rank before it dials, for incoming and returning sums
    devices: tuple[Device, Device] = ("", "")  # its RDMA devices to the next rank and to the one before


class Bootstrap(NamedTuple):
    """The members of a group, in the order of the ranks."""

    session: bytes
    ranks: tuple[RankEntry, ...]
    port: int = COORDINATOR_PORT

    @property
    def coordinator(self) -> str:
        """The address of rank 0 that every other rank reaches. Raises GroupFailed without one."""
        first, *others = self.ranks
        if host := next((host for host in first.hosts if all(host in other.hosts for other in others)), None):
            return host
        raise GroupFailed(
            "The first rank has no address that all other ranks reach.", "Connect all Macs to one network as well."
        )


_entries = msgspec.msgpack.Decoder(tuple[RankEntry, ...])


def encode(bootstrap: Bootstrap) -> bytes:
    return _HEAD.pack(bootstrap.port, bootstrap.session) + msgspec.msgpack.encode(bootstrap.ranks)


def decode(body: memoryview | bytes) -> Bootstrap:
    try:
        port, session = _HEAD.unpack_from(body)
        ranks = _entries.decode(body[_HEAD.size :])
    except (struct.error, *UNREADABLE) as error:
        raise ProtocolError("A bootstrap frame does not decode.") from error
    if port < LOWEST_PORT:
        raise ProtocolError(f"A bootstrap frame names port {port}.")
    return Bootstrap(session, ranks, port)


def agree(ring: Ring, entry: Callable[[Bootstrap], RankEntry]) -> Bootstrap:
    """The entries of all ranks, the same on each; `entry` makes this rank's from the ones before it. Raises LinkError
    or its kinds, also another rank's reason for not taking part.
    """
    head, world = ring.index == 0, len(ring.plan.stages)
    so_far = Bootstrap(uuid4().bytes, ()) if head else _told(ring, ring.index)
    so_far = so_far._replace(ranks=(*so_far.ranks, entry(so_far)))
    _tell(ring, so_far)
    whole = _told(ring, world)
    if whole.session != so_far.session or whole.ranks[: len(so_far.ranks)] != so_far.ranks:
        raise ProtocolError("The ranks' entries came back changed.")
    _tell(ring, whole)
    if head:
        _told(ring, world)
    return whole


def _tell(ring: Ring, bootstrap: Bootstrap) -> None:
    ring.send(FrameType.TENSOR_BOOTSTRAP, encode(bootstrap))


def _told(ring: Ring, ranks: int) -> Bootstrap:
    bootstrap = decode(ring.expect(FrameType.TENSOR_BOOTSTRAP, TELL_S).body)
    if len(bootstrap.ranks) != ranks:
        raise ProtocolError(f"A bootstrap frame has {len(bootstrap.ranks)} ranks, expected {ranks}.")
    return bootstrap
