"""A ready data link: one end seals and sends, the other receives and opens, one thread each."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from select import select
from time import monotonic, perf_counter
from typing import Final, NamedTuple, Unpack

from core.errors import LinkError, LinkLost, LinkTimeout, ProtocolError, SealError
from core.link.frames import HEADER, TAG_BYTES, FrameHeader, FrameType
from core.link.rekey_limits import KeyUse
from core.link.seal import FrameFields, Opener, Sealer
from core.link.tls import link_error

SEND_TIMEOUT_S: Final = 30.0
DESCRIPTOR_ROOM: Final = 512


class DataLink(NamedTuple):
    """An authenticated link. Frames go one way, from a `sender` to a `receiver`, whichever end dialled."""

    sock: ssl.SSLSocket
    sealer: Sealer
    opener: Opener
    peer_id: bytes
    name: str

    def sender(self) -> Sender:
        return Sender(self.sock, self.sealer, self.peer_id, self.name)

    def receiver(self) -> Receiver:
        return Receiver(self.sock, self.opener, self.peer_id, self.name)


class Frame(NamedTuple):
    """An opened frame; `body` is valid until the next `recv`."""

    header: FrameHeader
    body: memoryview


class LinkStats:
    """Counters of one direction, in seconds: `seal_s` and `send_s` of a sender, `wait_s` and `open_s` of a receiver.
    `wire_s`, part of `wait_s`, runs from a frame's header to its last byte. `bytes` are counted inside TLS.
    """

    __slots__ = ("bytes", "frames", "open_s", "seal_s", "send_s", "wait_s", "wire_s")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.frames = self.bytes = 0
        self.seal_s = self.send_s = self.wait_s = self.wire_s = self.open_s = 0.0


class KeyMeter:
    """Counts what one end's key has carried."""

    __slots__ = ("_half", "_since", "bytes")

    def __init__(self, half: Sealer | Opener) -> None:
        self._half = half
        self._since = monotonic()
        self.bytes = 0

    @property
    def use(self) -> KeyUse:
        return KeyUse(frames=self._half.frames, bytes=self.bytes, age_s=monotonic() - self._since)


class _LinkEnd:
    """The socket of a data link's end, its key's use and its counters."""

    def __init__(self, sock: ssl.SSLSocket, half: Sealer | Opener, peer_id: bytes, where: str) -> None:
        sock.settimeout(SEND_TIMEOUT_S)
        self._sock, self._where, self.peer_id = sock, where, peer_id
        self.key, self.stats = KeyMeter(half), LinkStats()

    def shut(self) -> None:
        """End the link from any thread; the thread that uses it notices and must close it."""
        shut(self._sock)

    def close(self) -> None:
        hang_up(self._sock)


class Sender(_LinkEnd):
    """The sending end of a data link."""

    def __init__(self, sock: ssl.SSLSocket, sealer: Sealer, peer_id: bytes, where: str) -> None:
        super().__init__(sock, sealer, peer_id, where)
        self._sealer = sealer
        self._meanwhile: tuple[int, Callable[[], None]] | None = None

    def drain_meanwhile(self, fileno: int, drain: Callable[[], None]) -> None:
        """Call `drain` when `fileno` is readable during a blocked send, so that a ring of senders can't deadlock."""
        self._meanwhile = fileno, drain
        self._sock.settimeout(0)

    def send(self, kind: FrameType, **fields: Unpack[FrameFields]) -> None:
        """Seal and send one frame of concatenated parts. Raises ProtocolError; other errors close the link."""
        started = perf_counter()
        try:
            frame = self._sealer.seal(kind, **fields)
        except SealError:
            self.close()
            raise
        sealed = perf_counter()
        self._transmit(frame)
        stats = self.stats
        stats.frames += 1
        stats.bytes += len(frame)
        self.key.bytes += len(frame)
        stats.seal_s += sealed - started
        stats.send_s += perf_counter() - sealed

    def _transmit(self, frame: memoryview) -> None:
        length = len(frame)
        try:
            sent = self._push(frame)
            while sent < length:
                sent += self._push(frame[sent:])
        except OSError as error:
            self.close()
            raise link_error(error, self._where) from error
        except LinkError:
            self.close()
            raise

    def _push(self, data: memoryview) -> int:
        """Number of bytes TLS accepted. Errors of `drain` propagate."""
        if self._meanwhile is None:
            return self._sock.send(data)
        fileno, drain = self._meanwhile
        deadline = monotonic() + SEND_TIMEOUT_S
        while True:
            try:
                return self._sock.send(data)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as error:
                readable, writable, _ = select([fileno], [self._sock], [], max(0.0, deadline - monotonic()))
                if readable:
                    drain()
                elif not writable:
                    raise TimeoutError from error


class Receiver(_LinkEnd):
    """The receiving end of a data link. `row_bytes`, if set, limits the size of an ACTIVATION."""

    def __init__(self, sock: ssl.SSLSocket, opener: Opener, peer_id: bytes, where: str) -> None:
        super().__init__(sock, opener, peer_id, where)
        self._opener = opener
        self._timeout_s: float | None = SEND_TIMEOUT_S
        self.row_bytes: int | None = None

    def fileno(self) -> int:
        """File descriptor for select; check `pending` first, since TLS may hold bytes that the kernel no longer has."""
        return self._sock.fileno()

    def pending(self) -> bool:
        return self._sock.pending() > 0

    def recv(self, timeout_s: float | None) -> Frame:
        """Receive the next frame. Raises LinkTimeout if none starts within `timeout_s`; the link stays usable then.
        None waits until the link ends.

        Other errors close the link: LinkLost, ProtocolError, SealError, LinkTimeout in the middle of a frame.
        """
        started = perf_counter()
        if timeout_s != self._timeout_s:
            self._wait_at_most(timeout_s)
        opener = self._opener
        try:
            self._fill(opener.header, idle=True)
            began = perf_counter()
            header = opener.look()
            if header.type is FrameType.ACTIVATION and self.row_bytes is not None:
                _check_rows(header, self.row_bytes)
            self._fill(opener.room(header), idle=False)
            arrived = perf_counter()
            body = opener.open()
        except _Idle:
            raise LinkTimeout(f"{self._where} sent nothing for {timeout_s:g} s.") from None
        except LinkError:
            self.close()
            raise
        length = HEADER.size + header.body_len
        stats = self.stats
        stats.frames += 1
        stats.bytes += length
        self.key.bytes += length
        stats.wait_s += arrived - started
        stats.wire_s += arrived - began
        stats.open_s += perf_counter() - arrived
        return Frame(header, body)

    def leave_body(self, spare: bytearray | None) -> None:
        """Keep the last body valid after the next `recv`. Later bodies use `spare` if it has the right size."""
        self._opener.leave(spare)

    def _wait_at_most(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._sock.settimeout(timeout_s)

    def _fill(self, target: memoryview, *, idle: bool) -> None:
        """Read until `target` is full. Once a frame has begun, the rest may take as long as a send."""
        got, length = 0, len(target)
        while got < length:
            try:
                count = self._sock.recv_into(target[got:] if got else target)
            except (TimeoutError, ssl.SSLWantReadError) as error:
                if idle and not got:
                    raise _Idle from None
                if self._timeout_s is None or self._timeout_s >= SEND_TIMEOUT_S:
                    raise LinkTimeout(f"{self._where} stopped in the middle of a frame.") from error
                self._wait_at_most(SEND_TIMEOUT_S)
            except OSError as error:
                raise link_error(error, self._where) from error
            else:
                if not count:
                    raise LinkLost(f"{self._where} closed the link.")
                got += count


class _Idle(Exception):
    """No frame has begun yet."""


def _check_rows(header: FrameHeader, row_bytes: int) -> None:
    most = header.rows * row_bytes + DESCRIPTOR_ROOM + TAG_BYTES
    if header.body_len > most:
        raise ProtocolError(f"An activation of {header.rows} rows has {header.body_len} bytes; {most} are allowed.")


def shut(sock: socket.socket) -> None:
    """End a socket from another thread; the thread that uses it notices and closes it."""
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS would forget its keys while that thread uses them


def hang_up(sock: socket.socket) -> None:
    with suppress(OSError):  # the other end was faster
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
