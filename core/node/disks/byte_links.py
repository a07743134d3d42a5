"""Sealed links for the bytes of models alone, so that control links stay free for signs of life and tokens."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from time import monotonic
from typing import Final, Protocol

import msgspec

from core.errors import LinkLost
from core.link.channel import Alarm, DataLink, accept, dial, listen
from core.link.ways import Way, connect
from core.node.disks.messages import BytesAsk
from core.trust.identity import Identity, parse_text_id
from core.trust.roster import Cluster

LINK_S: Final = 15.0


class KnownPaths(Protocol):
    """On which ways a linked Mac is reached."""

    def ways(self, device_id: str) -> Sequence[Way]:
        """All that are known, none if it is not linked."""


class Store(Protocol):
    """The roster that counts."""

    def cluster(self) -> Cluster:
        """Its Macs, as of now."""


class ByteLinks:
    """Who fetches dials, who gives listens on `host`: a door for one link of one Mac. Threads may share it."""

    def __init__(self, identity: Identity, store: Store, paths: KnownPaths, host: str) -> None:
        self._identity, self._store, self._paths, self._host = identity, store, paths, host

    def listen(self) -> socket.socket:
        """A listener on a free port. Raises LinkLost."""
        return listen(self._host)

    def ways(self, device_id: str) -> tuple[Way, ...]:
        """To that Mac. Raises LinkLost where there is none."""
        if not (ways := tuple(self._paths.ways(device_id))):
            raise LinkLost("The Mac that has the model is not linked.", "Wait until it is back, then copy again.")
        return ways

    def accept(self, listener: socket.socket, device_id: str, asked: BytesAsk, alarm: Alarm) -> DataLink:
        """The link that this Mac dials for what it asked. Raises LinkError, and what `alarm` raises."""
        return accept(
            listener,
            identity=self._identity,
            cluster=self._store.cluster(),
            peer_id=self._id_of(device_id),
            binding=_binding(asked),
            timeout_s=LINK_S,
            alarm=alarm,
        )

    def dial(self, device_id: str, ways: Sequence[Way], port: int, asked: BytesAsk) -> DataLink:
        """To the door that this Mac opened for what was asked. Raises LinkError."""
        until = monotonic() + LINK_S
        plain, way = connect(ways, port, LINK_S)
        return dial(
            way.host,
            port,
            identity=self._identity,
            cluster=self._store.cluster(),
            peer_id=self._id_of(device_id),
            binding=_binding(asked),
            timeout_s=until - monotonic(),
            plain=plain,
        )

    def _id_of(self, device_id: str) -> bytes:
        return parse_text_id(device_id)


def _binding(asked: BytesAsk) -> bytes:
    return hashlib.sha256(b"macluster/1 blocks\0" + msgspec.json.encode(asked)).digest()
