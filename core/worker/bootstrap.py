"""How the ranks of a tensor plan tell each other what their group needs: 0x07 goes round the ring twice.

The body: port u16 little-endian | session 16, a fresh UUID | the entries of the ranks so far, as MessagePack. On the
first round each rank adds its own entry, on the second each reads them all, so nobody goes on before all are there.
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
    """What a rank tells the others. `hosts`: of rank 0 its addresses, of any other rank those of them that it reaches.
    `ports`: where the rank before it dials, for what comes in and for what goes back. `devices`: its RDMA devices to
    the next rank and to the one before.
    """

    hosts: Annotated[tuple[Host, ...], msgspec.Meta(max_length=MAX_HOSTS)] = ()
    ports: tuple[Port, Port] = (0, 0)
    devices: tuple[Device, Device] = ("", "")


class Bootstrap(NamedTuple):
    """The members of a group, in the order of the ranks."""

    session: bytes
    ranks: tuple[RankEntry, ...]
    port: int = COORDINATOR_PORT

    @property
    def coordinator(self) -> str:
        """The address of rank 0 that every other rank reaches. Raises GroupFailed where no address is."""
        first, *others = self.ranks
        if host := next((host for host in first.hosts if all(host in other.hosts for other in others)), None):
            return host
        raise GroupFailed(
            "The first rank has no address that all other ranks reach.", "Join the Macs by one network, beside cables."
        )


_entries = msgspec.msgpack.Decoder(tuple[RankEntry, ...])


def encode(bootstrap: Bootstrap) -> bytes:
    """The body of the frame."""
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
    """The entries of all ranks, the same on all of them; `entry` makes this one's, of those before it. Raises LinkError
    or its kinds, also what another rank gives as the reason for which it cannot take part.
    """
    head, world = ring.index == 0, len(ring.plan.stages)
    so_far = Bootstrap(uuid4().bytes, ()) if head else _told(ring, ring.index)
    so_far = so_far._replace(ranks=(*so_far.ranks, entry(so_far)))
    _tell(ring, so_far)
    whole = _told(ring, world)
    if whole.session != so_far.session or whole.ranks[: len(so_far.ranks)] != so_far.ranks:
        raise ProtocolError("What the ranks sent each other came back changed.")
    _tell(ring, whole)
    if head:
        _told(ring, world)
    return whole


def _tell(ring: Ring, bootstrap: Bootstrap) -> None:
    ring.send(FrameType.TENSOR_BOOTSTRAP, encode(bootstrap))


def _told(ring: Ring, ranks: int) -> Bootstrap:
    bootstrap = decode(ring.expect(FrameType.TENSOR_BOOTSTRAP, TELL_S).body)
    if len(bootstrap.ranks) != ranks:
        raise ProtocolError(f"A bootstrap frame has {len(bootstrap.ranks)} ranks, {ranks} were due.")
    return bootstrap
