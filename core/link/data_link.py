"""The two ends of a data link that is ready: one seals and sends, the other receives and opens. One thread an end."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from select import select
from time import monotonic, perf_counter
from typing import Final, NamedTuple

from core.errors import LinkError, LinkLost, LinkTimeout, ProtocolError, SealError
from core.link.frames import HEADER, TAG_BYTES, Buffer, FrameHeader, FrameType
from core.link.rekey_limits import KeyUse
from core.link.seal import Opener, Sealer
from core.link.tls import link_error

SEND_TIMEOUT_S: Final = 30.0
DESCRIPTOR_ROOM: Final = 512


class DataLink(NamedTuple):
    """A link whose ends have proved themselves to each other. Frames go one way only, from a `sender` at one end to a
    `receiver` at the other, whichever of them dialled.
    """

    sock: ssl.SSLSocket
    sealer: Sealer
    opener: Opener
    peer_id: bytes
    name: str

    def sender(self) -> Sender:
        """This end seals and sends."""
        return Sender(self.sock, self.sealer, self.peer_id, self.name)

    def receiver(self) -> Receiver:
        """This end receives and opens."""
        return Receiver(self.sock, self.opener, self.peer_id, self.name)


class Frame(NamedTuple):
    """A frame that was opened; `body` is valid until the next `recv`."""

    header: FrameHeader
    body: memoryview


class LinkStats:
    """Counters of one direction; a sender spends `seal_s` and `send_s`, a receiver `wait_s` and `open_s`, in seconds.
    `wire_s`, a part of `wait_s`, went by between the header of a frame and its last byte: what the wire took.
    `bytes` counts what was on the wire inside TLS.
    """

    __slots__ = ("bytes", "frames", "open_s", "seal_s", "send_s", "wait_s", "wire_s")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Count from zero."""
        self.frames = self.bytes = 0
        self.seal_s = self.send_s = self.wait_s = self.wire_s = self.open_s = 0.0


class KeyMeter:
    """What the key of one end has carried, whatever requests came and went."""

    __slots__ = ("_half", "_since", "bytes")

    def __init__(self, half: Sealer | Opener) -> None:
        self._half = half
        self._since = monotonic()
        self.bytes = 0

    @property
    def use(self) -> KeyUse:
        """Until now."""
        return KeyUse(frames=self._half.frames, bytes=self.bytes, age_s=monotonic() - self._since)


class Sender:
    """The end that seals and sends."""

    def __init__(self, sock: ssl.SSLSocket, sealer: Sealer, peer_id: bytes, where: str) -> None:
        sock.settimeout(SEND_TIMEOUT_S)
        self._sock, self._sealer, self._where = sock, sealer, where
        self.peer_id = peer_id
        self.key = KeyMeter(sealer)
        self.stats = LinkStats()
        self._meanwhile: tuple[int, Callable[[], None]] | None = None

    def drain_meanwhile(self, fileno: int, drain: Callable[[], None]) -> None:
        """While the other end does not take more, call `drain` whenever `fileno` can be read. One end of a ring must
        read on, or each could wait for ever for the next one to read.
        """
        self._meanwhile = fileno, drain
        self._sock.settimeout(0)

    def send(
        self,
        kind: FrameType,
        *,
        request_id: bytes = bytes(16),
        pos: int = 0,
        rows: int = 0,
        layers: tuple[int, int] = (0, 0),
        plan_gen: int = 0,
        flags: int = 0,
        dtype: int = 0,
        parts: Sequence[Buffer] = (),
    ) -> None:
        """Seal and send one frame; the parts, one after the other, are its body.

        Raises ProtocolError for a field beyond its limit; LinkLost, LinkTimeout or SealError, and the link is closed.
        """
        started = perf_counter()
        try:
            frame = self._sealer.seal(
                kind,
                request_id=request_id,
                pos=pos,
                rows=rows,
                layers=layers,
                plan_gen=plan_gen,
                flags=flags,
                dtype=dtype,
                parts=parts,
            )
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
        """What a send that failed left on the wire is unknown, so this socket is never used again then."""
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
        """How many bytes TLS took; what `drain` raises passes through."""
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

    def shut(self) -> None:
        """End the link, from any thread: the one that uses it sees it at once, and is to close it."""
        shut(self._sock)

    def close(self) -> None:
        """End the link; the other end sees it at once."""
        hang_up(self._sock)


class Receiver:
    """The end that receives and opens. `row_bytes`, once set, bounds what an ACTIVATION may be long."""

    def __init__(self, sock: ssl.SSLSocket, opener: Opener, peer_id: bytes, where: str) -> None:
        sock.settimeout(SEND_TIMEOUT_S)
        self._sock, self._opener, self._where = sock, opener, where
        self._timeout_s: float | None = SEND_TIMEOUT_S
        self.peer_id = peer_id
        self.row_bytes: int | None = None
        self.key = KeyMeter(opener)
        self.stats = LinkStats()

    def fileno(self) -> int:
        """For select; ask `pending` first, since TLS may hold bytes that the kernel no longer has."""
        return self._sock.fileno()

    def pending(self) -> bool:
        """Whether decrypted bytes wait inside TLS."""
        return self._sock.pending() > 0

    def recv(self, timeout_s: float | None) -> Frame:
        """The next frame. Raises LinkTimeout if none begins within `timeout_s`: the link stays good then. None waits
        until the link ends, also in the middle of a frame.

        Any other error closes the link: LinkLost, ProtocolError, SealError, LinkTimeout in the middle of a frame.
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
        """The body of the last frame stays valid behind the next `recv`, too: later ones lie in `spare`, the memory of
        one that is of no more use, if it is as long.
        """
        self._opener.leave(spare)

    def shut(self) -> None:
        """End the link, from any thread: the one that uses it sees it at once, and is to close it."""
        shut(self._sock)

    def close(self) -> None:
        """End the link; the other end sees it at once."""
        hang_up(self._sock)

    def _wait_at_most(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._sock.settimeout(timeout_s)

    def _fill(self, target: memoryview, *, idle: bool) -> None:
        """Read until `target` is full. Once a frame has begun, its rest has as long as a send may take."""
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
    """Nothing has come yet, not even a part of a frame."""


def _check_rows(header: FrameHeader, row_bytes: int) -> None:
    most = header.rows * row_bytes + DESCRIPTOR_ROOM + TAG_BYTES
    if header.body_len > most:
        raise ProtocolError(f"An activation of {header.rows} rows has {header.body_len} bytes; {most} are allowed.")


def shut(sock: socket.socket) -> None:
    """End what goes over a socket, from another thread than the one that uses it, sees that at once and closes it."""
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS would forget its keys while that thread uses them


def hang_up(sock: socket.socket) -> None:
    """Close a socket so that the other end sees it at once."""
    with suppress(OSError):  # the other end was faster
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
