"""Network paths to another Mac, and which one to use: by kind of network, then by measurements."""

from __future__ import annotations

import errno
import selectors
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from time import monotonic
from typing import Annotated, Final, NamedTuple

import msgspec

from core.address import is_link_local
from core.errors import LinkError, LinkTimeout
from core.events import PathKind
from core.link.tls import link_error
from core.mac.network_kind import bind_to
from core.numbers import Size

MAX_NETWORK_PATHS: Final = 8
RANKS: Final[Mapping[PathKind, int]] = {"Thunderbolt": 0, "Ethernet": 1, "Wi-Fi": 2, "": 3, "tunnel": 4}
ALIKE: Final = 0.25
# for a token of the answer, with its share of the prompt: 2,000 and 250 tokens of 8 KiB each are 72 KiB for one of 250
TOKEN_BYTES: Final = 64 * 1024
GRACE_S: Final = 0.5

Host = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class ListenAddress(msgspec.Struct, frozen=True, array_like=True):
    """An address of a Mac, and the kind of its network."""

    host: Host
    kind: PathKind = ""


class NetworkPath(msgspec.Struct, frozen=True):
    """A path to another Mac's address through one of this Mac's interfaces."""

    host: Host
    interface: str = ""  # "": the system's choice
    kind: PathKind = ""  # of the slower end
    rate_mbits: Size = 0  # link rate of the interface; 0: unknown
    bytes_per_s: Size = 0  # measured; 0: not yet

    @property
    def rank(self) -> int:
        return RANKS[self.kind]

    def is_alike(self, other: NetworkPath) -> bool:
        """Whether only measurements can tell which is better: the kind is the same, or not known of one."""
        return self.kind == other.kind or not (self.kind and other.kind)

    def is_same(self, other: NetworkPath) -> bool:
        return (self.host, self.interface) == (other.host, other.interface)


class MeasuredPath(NamedTuple):
    """A path that works, and its round trip in seconds."""

    way: NetworkPath
    rtt_s: float


def slower_kind(one: PathKind, other: PathKind) -> PathKind:
    return max(one, other, key=RANKS.__getitem__)


def token_costs_s(alike: Sequence[MeasuredPath]) -> list[float]:
    """Seconds per token on each of these paths of one kind: round trip, plus transfer time if all rates are known."""
    if not all(each.way.bytes_per_s for each in alike):
        return [each.rtt_s for each in alike]
    return [each.rtt_s + TOKEN_BYTES / each.way.bytes_per_s for each in alike]


def best_path(tried: Sequence[MeasuredPath]) -> MeasuredPath:
    """Choose the best kind, then the lowest cost per token, or the shortest round trip if rates are unknown. A path of
    unknown kind counts as one of the best kind if its round trip is shorter.
    """
    kind = min(each.way.rank for each in tried)
    alike = [each for each in tried if each.way.rank == kind]
    shortest = min(each.rtt_s for each in alike)
    alike += [each for each in tried if not each.way.kind and each.way.rank != kind and each.rtt_s < shortest]
    if all(each.way.bytes_per_s for each in alike):
        costs = token_costs_s(alike)
        return alike[costs.index(min(costs))]
    quick = (1 + ALIKE) * min(each.rtt_s for each in alike)
    return min((e for e in alike if e.rtt_s <= quick), key=lambda e: (-e.way.rate_mbits, e.rtt_s))


def connect(ways: Sequence[NetworkPath], port: int, timeout_s: float) -> tuple[socket.socket, NetworkPath]:
    """Try all `ways` at once; a better one gets half a second after the first success. Raises LinkLost, LinkTimeout."""
    only = ways[0]
    if len(ways) == 1 and not only.interface:
        try:
            return socket.create_connection((only.host, port), timeout=timeout_s), only
        except OSError as error:
            raise link_error(error, f"{only.host} port {port}") from error
    with closing(_Attempt(ways, port)) as attempt:
        return attempt.wait(timeout_s)


def measure_paths(ways: Sequence[NetworkPath], port: int, timeout_s: float) -> list[MeasuredPath]:
    """Paths that connect within `timeout_s`. Sends nothing and closes the connections."""
    with closing(_Attempt(ways, port)) as attempt:
        return attempt.wait_for_all(timeout_s)


class _Attempt:
    """Connects on several paths at once, and keeps one."""

    def __init__(self, ways: Sequence[NetworkPath], port: int) -> None:
        self._port, self._began = port, monotonic()
        self._selector = selectors.DefaultSelector()
        self._standing: dict[MeasuredPath, socket.socket] = {}
        self._error: LinkError = LinkTimeout(f"{ways[0].host} port {port} did not answer in time.")
        for way in ways:
            self._begin(way)

    def wait(self, timeout_s: float) -> tuple[socket.socket, NetworkPath]:
        until = self._began + timeout_s
        while self._selector.get_map() and not self._is_decided() and (left := until - monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._settle(key)
                until = min(until, monotonic() + GRACE_S) if self._standing else until
        if not self._standing:
            raise self._error
        found = best_path(list(self._standing))
        return self._standing.pop(found), found.way

    def wait_for_all(self, timeout_s: float) -> list[MeasuredPath]:
        until = self._began + timeout_s
        while self._selector.get_map() and (left := until - monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._settle(key)
        return list(self._standing)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            _socket(key).close()
        self._selector.close()
        for sock in self._standing.values():
            sock.close()

    def _begin(self, way: NetworkPath) -> None:
        sock = None
        try:
            is_said = ":" in way.host and is_link_local(way.host)  # then the address itself can say which interface
            host = f"{way.host}%{way.interface}" if is_said else way.host
            family, kind, proto, _, address = socket.getaddrinfo(host, self._port, type=socket.SOCK_STREAM)[0]
            sock = socket.socket(family, kind, proto)
            if way.interface and not is_said:
                bind_to(sock, way.interface)
            sock.setblocking(False)
            if (code := sock.connect_ex(address)) not in (0, errno.EINPROGRESS):
                raise OSError(code, "connect")
            self._selector.register(sock, selectors.EVENT_WRITE, way)
        except OSError as error:
            self._error = link_error(error, f"{way.host} port {self._port}")
            if sock:
                sock.close()

    def _settle(self, key: selectors.SelectorKey) -> None:
        sock, way = _socket(key), key.data
        self._selector.unregister(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._error = link_error(OSError(code, "connect"), f"{way.host} port {self._port}")
            sock.close()
        else:
            self._standing[MeasuredPath(way, monotonic() - self._began)] = sock

    def _is_decided(self) -> bool:
        open_ranks = [key.data.rank if key.data.kind else 0 for key in self._selector.get_map().values()]
        return bool(self._standing) and min(t.way.rank for t in self._standing) < min(open_ranks)


def _socket(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj
