"""Tunnels: carry another library's local stream to a neighbour over sealed data links.

Each direction has its own data link and blocking thread, and copies only for the seal. A link whose key is worn ends
with RESUME, and both ends open another one: the dialler dials again.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Lock, Thread
from time import monotonic
from typing import Final, TypeVar

from core.errors import LinkError, LinkLost, MaclusterError, ProtocolError
from core.link.data_link import Receiver, Sender, shut
from core.link.frames import FrameType
from core.link.rekey_limits import KeyUse

CHUNK_BYTES: Final = 1 << 16
LOCAL_BYTES: Final = 1 << 20
CLOSE_S: Final = 1.0  # a thread that is reconnecting closes its new link itself

Lost = Callable[[LinkError], None]
End = TypeVar("End", Sender, Receiver)


def local_pair() -> tuple[socket.socket, socket.socket]:
    """A socket pair inside this process, with buffers for what a reduce sends at once."""
    pair = socket.socketpair()
    for end in pair:
        for room in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # macOS gives 8 KiB
            end.setsockopt(socket.SOL_SOCKET, room, LOCAL_BYTES)
    return pair


class Tunnel:
    """A tunnel between `local` and a neighbour; the socket and both links end together. Then `lost` is called once with
    the reason, in a thread of the tunnel, unless this end was closed.
    """

    def __init__(
        self,
        local: socket.socket,
        open_sender: Callable[[], Sender],
        open_receiver: Callable[[], Receiver],
        *,
        dials: bool,
        limits: KeyUse,
        lost: Lost,
    ) -> None:
        """Open the links, the sender first if this end `dials`, and again when a key reaches `limits`."""
        self._local, self._limits, self._lost = local, limits, lost
        self._open_sender, self._open_receiver = open_sender, open_receiver
        self._lock = Lock()
        self._is_over = False
        self._links: dict[type, Sender | Receiver] = {}
        self._threads: tuple[Thread, ...] = ()
        try:
            if dials:
                sender = self._opened(open_sender)
                receiver = self._opened(open_receiver)
            else:
                receiver = self._opened(open_receiver)
                sender = self._opened(open_sender)
        except MaclusterError:
            self.close()
            raise
        self._threads = (
            Thread(target=self._run, args=(self._send, sender), name="tunnel out", daemon=True),
            Thread(target=self._run, args=(self._receive, receiver), name="tunnel in", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the tunnel; the neighbour notices at once. Not from a thread of the tunnel."""
        self.end()
        until = monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))
        for end in (self._local, *self._links.values()):
            end.close()

    def end(self) -> bool:
        """Shut all three ends, from any thread; whether this call was the first. A socket's own thread closes it."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
            for link in self._links.values():
                link.shut()
        shut(self._local)
        return not was_over

    def _run(self, pump: Callable[[End], LinkError], end: End) -> None:
        try:
            why = pump(end)
        except OSError as error:
            why = LinkLost(f"The local end of a tunnel broke: {error.strerror or error}.")
        except MaclusterError as error:
            why = error if isinstance(error, LinkError) else LinkLost(error.what, error.fix)
        if self.end():
            self._lost(why)

    def _send(self, sender: Sender) -> LinkError:
        room = memoryview(bytearray(CHUNK_BYTES))
        take, limits = self._local.recv_into, self._limits
        while count := take(room):
            if sender.key.use.reaches(limits):
                sender.send(FrameType.RESUME)
                sender = self._opened(self._open_sender)
            sender.send(FrameType.TUNNEL, parts=[room[:count]])
        return LinkLost("The program that uses the tunnel has ended on this Mac.")

    def _receive(self, receiver: Receiver) -> LinkError:
        give = self._local.sendall
        while True:
            header, body = receiver.recv(None)
            if header.type is FrameType.TUNNEL:
                give(body)
            elif header.type is FrameType.RESUME and not body:
                receiver = self._opened(self._open_receiver)
            else:
                return ProtocolError(f"Frame 0x{header.type:02x} came through a tunnel.")

    def _opened(self, make: Callable[[], End]) -> End:
        """Open a link in place of the previous one. Raises LinkLost if the tunnel ended meanwhile."""
        link = make()
        with self._lock:
            if before := self._links.get(type(link)):
                before.close()
            self._links[type(link)] = link
            is_over = self._is_over
        if is_over:
            link.close()
            raise LinkLost("The tunnel ended while it was being linked again.")
        return link


class Tunnels:
    """Tunnels that end together; `lost` is called once with the reason, unless they were closed."""

    def __init__(self, lost: Lost) -> None:
        self._lost = lost
        self._lock = Lock()
        self._is_over = False
        self._made: list[Tunnel] = []

    def add(self, make: Callable[[Lost], Tunnel]) -> None:
        """Add a tunnel made with the callback for its end. Raises LinkLost if another one has ended."""
        tunnel = make(self._ended)
        with self._lock:
            self._made.append(tunnel)
            is_over = self._is_over
        if is_over:
            tunnel.close()
            raise LinkLost("Another tunnel of the same group ended meanwhile.")

    def close(self) -> None:
        """End them; the neighbours notice at once. Not from a thread of a tunnel."""
        self._end()
        for tunnel in self._made:
            tunnel.close()

    def _ended(self, why: LinkError) -> None:
        if self._end():
            self._lost(why)

    def _end(self) -> bool:
        with self._lock:
            was_over, self._is_over = self._is_over, True
            made = tuple(self._made)
        for tunnel in made:
            tunnel.end()
        return not was_over
