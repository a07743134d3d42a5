"""Run many handshakes on a data port until one caller proves to be the expected Mac.

TLS costs a thousand times as much as a connection, so it starts only after a complete first TLS record arrived, and the
listener is emptied between any two steps.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from select import select
from time import monotonic, sleep
from typing import Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from core.errors import LinkLost, LinkTimeout, MaclusterError, ProtocolError
from core.link.data_link import DataLink, hang_up
from core.link.listener import accept, caller_address
from core.link.tls import TLS_TIMEOUT_S, link_error
from core.trust.identity import text_id

G = TypeVar("G")
GUESTS: Final = 64
AT_ONCE: Final = 256
LOOK_S: Final = 0.25
PAUSE_S: Final = 0.1
_RECORD_HEAD: Final = 5
_RECORD_BYTES: Final = 1 << 14
_HANDSHAKE: Final = b"\x16\x03"
_RESET: Final = struct.pack("ii", 1, 0)


class _Group(NamedTuple):
    """Connections from one address that have, or have not, begun a handshake."""

    host: str
    has_begun: bool


class PendingConnections(Generic[G]):
    """Connections by address. The oldest of the largest group, best a silent one, makes room: floods go first."""

    def __init__(self) -> None:
        self._group_of: Final[dict[G, _Group]] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, guest: G) -> bool:
        return guest in self._group_of

    def __iter__(self) -> Iterator[G]:
        return iter(self._group_of)

    def enter(self, guest: G, host: str) -> None:
        self._group_of[guest] = _Group(host, has_begun=False)

    def has_begun(self, guest: G) -> bool:
        return self._group_of[guest].has_begun

    def begin(self, guest: G) -> None:
        if not self.has_begun(guest):
            group = self._group_of.pop(guest)
            self._group_of[guest] = group._replace(has_begun=True)

    def leave(self, guest: G) -> None:
        del self._group_of[guest]

    def first_to_go(self) -> G | None:
        sizes = Counter(self._group_of.values())
        rank = {guest: (sizes[group], not group.has_begun) for guest, group in self._group_of.items()}
        return max(rank, key=rank.__getitem__, default=None)


class Alarm(NamedTuple):
    """Ends a wait: `sound` is called when `fileno` is readable, and raises a LinkError."""

    fileno: int
    sound: Callable[[], NoReturn]


Steps = Generator[float, None, DataLink]


class Handshake(Protocol):
    """The acceptor's handshake as a generator, so that one thread can run many at once."""

    peer_id: bytes

    def wrap(self, plain: socket.socket) -> ssl.SSLSocket:
        """Start server TLS on a non-blocking socket."""

    def steps(self, sock: ssl.SSLSocket) -> Steps:
        """Yield while waiting for bytes: the time limit of the current phase in seconds."""


class _Guest:
    """An unauthenticated connection. `steps` is None until its handshake starts."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.steps: Steps | None = None
        self._needs = self._waits_for = 1
        self._phase_s = TLS_TIMEOUT_S
        self.until = monotonic() + TLS_TIMEOUT_S

    def has_begun(self) -> bool:
        """Whether the first TLS record is complete; it stays unread. Raises LinkLost, ProtocolError for other bytes."""
        try:
            head = self.sock.recv(_RECORD_HEAD, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if not head:
            raise LinkLost("It closed the link during the handshake.")
        length = int.from_bytes(head[3:]) if len(head) == _RECORD_HEAD else 1
        if not _HANDSHAKE.startswith(head[:2]) or not 0 < length <= _RECORD_BYTES:
            raise ProtocolError("It does not speak TLS.")
        self._needs = _RECORD_HEAD + length
        return len(self.sock.recv(self._needs, socket.MSG_PEEK)) == self._needs

    def wait_for_more(self) -> None:
        """Wake up when the record is complete. Raises LinkLost on the second call: the rest will not come."""
        if self._needs == self._waits_for:
            raise LinkLost("It closed the link during the handshake.")
        self._waits_for = self._needs
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._needs)

    def advance(self) -> DataLink | None:
        """Continue the handshake; the link if it is done. Raises what the handshake raises."""
        assert self.steps
        try:
            phase_s = next(self.steps)
        except StopIteration as done:
            link: DataLink = done.value
            return link
        if phase_s != self._phase_s:
            self._phase_s, self.until = phase_s, monotonic() + phase_s
        return None


class ConcurrentHandshakes:
    """All open handshakes, the listener and the alarm."""

    def __init__(self, listener: socket.socket, handshake: Handshake, alarm: Alarm | None) -> None:
        self._listener, self._handshake = listener, handshake
        self._guests = PendingConnections[_Guest]()
        self._problem = ""
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        if alarm:
            self._selector.register(alarm.fileno, selectors.EVENT_READ, alarm)

    def wait(self, deadline: float) -> DataLink:
        """Wait until one caller proves to be the expected Mac. Raises LinkTimeout, and what the alarm raises."""
        while (left := deadline - monotonic()) > 0:
            for key, _ in self._selector.select(min(left, LOOK_S)):
                if isinstance(key.data, Alarm):
                    key.data.sound()
                elif key.data in self._guests and (link := self._advance(key.data)):
                    return link
                self._admit()
            for guest in [g for g in self._guests if monotonic() > g.until]:
                self._dismiss(guest, "It was silent.")
        what = f"Mac {text_id(self._handshake.peer_id)[:8]} did not link in time."
        raise LinkTimeout(f"{what} The last one to call was refused: {self._problem}" if self._problem else what)

    def close(self) -> None:
        for guest in list(self._guests):
            self._dismiss(guest, "")
        self._selector.close()

    def _admit(self) -> None:
        for _ in range(AT_ONCE):
            try:
                plain, address = accept(self._listener)
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # gone again before we looked
            except OSError:  # no file descriptor is left; `accept` reports that even when no caller waits
                if select([self._listener], [], [], 0)[0]:
                    self._make_room()
                    sleep(PAUSE_S)
                return
            if (host := caller_address(self._listener, address)) is None:
                plain.close()
                continue
            plain.setblocking(False)
            if len(self._guests) == GUESTS:
                self._make_room()
            guest = _Guest(plain)
            self._guests.enter(guest, host)
            self._selector.register(plain, selectors.EVENT_READ, guest)

    def _make_room(self) -> None:
        """Drop one connection, but none that meanwhile began its handshake while others have not."""
        while guest := self._guests.first_to_go():
            if self._guests.has_begun(guest) or not self._look(guest):
                break
        if guest and guest in self._guests:
            # discard what the caller has already sent, too
            guest.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._dismiss(guest, "It was slow.")  # an honest handshake takes milliseconds

    def _look(self, guest: _Guest) -> bool:
        with self._judging(guest):
            if guest.has_begun():
                self._guests.begin(guest)
                return True
        return False

    def _advance(self, guest: _Guest) -> DataLink | None:
        with self._judging(guest):
            if guest.steps is None and not self._begin(guest):
                guest.wait_for_more()
                return None
            if link := guest.advance():
                self._selector.unregister(guest.sock)
                self._guests.leave(guest)
                return link
        return None

    def _begin(self, guest: _Guest) -> bool:
        if not guest.has_begun():
            return False
        self._guests.begin(guest)
        sock = self._handshake.wrap(guest.sock)  # its descriptor stays, so it is registered still
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)  # of `wait_for_more`
        guest.sock, guest.steps = sock, self._handshake.steps(sock)
        return True

    @contextmanager
    def _judging(self, guest: _Guest) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._dismiss(guest, link_error(error, "It").what)
        except MaclusterError as error:
            self._dismiss(guest, error.what)

    def _dismiss(self, guest: _Guest, problem: str) -> None:
        self._problem = problem
        self._selector.unregister(guest.sock)
        self._guests.leave(guest)
        if guest.steps:
            guest.steps.close()
        hang_up(guest.sock)
