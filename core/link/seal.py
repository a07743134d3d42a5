"""The seal of every frame: ChaCha20-Poly1305, nonce 0000 | seq u64, over cluster 16 | sid 16 | direction 1 | header 48.

Both ends keep these 81 bytes and the frame in one buffer, `cluster | sid | direction | header | body`, so the header on
the wire is the header that is authenticated and nothing is copied: the frame is the buffer from byte 33 on.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypedDict

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from core.errors import ProtocolError, SealError
from core.link.frames import HEADER, MAX_BODY, TAG_BYTES, Buffer, FrameHeader, FrameType, pack_into, parse
from core.link.session import LinkSession

MAX_FRAMES_PER_KEY: Final = 1 << 33
FIRST_ROOM: Final = 64 * 1024
_PREFIX: Final = 33
_BODY: Final = _PREFIX + HEADER.size
_SEQ: Final = struct.Struct("<Q")


class _Half:
    """One direction of a session: key, counter and growing buffers, shared only by `Opener.leave`."""

    def __init__(self, key: bytes, prefix: bytes) -> None:
        self._aead = ChaCha20Poly1305(key)
        self._prefix = prefix
        self._nonce = bytearray(12)
        self._seq = 0
        self._room = self._length = -1
        self._make_room(FIRST_ROOM)

    def _make_room(self, length: int) -> None:
        """Allocate buffers for `length` bytes of plaintext, in powers of two so that they seldom grow."""
        self._room = 1 << (length - 1).bit_length()
        self._buffer = memoryview(bytearray(_BODY + self._room + TAG_BYTES))
        self._buffer[:_PREFIX] = self._prefix
        self._aad = self._buffer[:_BODY]
        self.header = self._buffer[_PREFIX:_BODY]
        self._plain = memoryview(bytearray(self._room))
        self._fit(0)

    def _fit(self, length: int) -> None:
        """Set the views for `length` bytes of plaintext; kept, since most frames have the length of the one before."""
        if length > self._room:
            self._make_room(length)
        self._length = length
        self._text = self._plain[:length]
        self.frame = self._buffer[_PREFIX : _BODY + length + TAG_BYTES]
        self.body = self._buffer[_BODY : _BODY + length + TAG_BYTES]

    @property
    def frames(self) -> int:
        return self._seq

    def _step(self) -> None:
        """Set the nonce of the next frame. Raises SealError when the key is used up."""
        if self._seq >= MAX_FRAMES_PER_KEY:
            raise SealError("This link has carried as many frames as one key may.", "Load the model again.")
        assert len(self._nonce) == 12  # some ciphers take other lengths, and the counter would lie elsewhere
        _SEQ.pack_into(self._nonce, 4, self._seq)


class FrameFields(TypedDict, total=False):
    """Fields of a frame besides its type, as `Sealer.seal` takes them."""

    request_id: bytes
    pos: int
    rows: int
    layers: tuple[int, int]
    plan_gen: int
    flags: int
    dtype: int
    parts: Sequence[Buffer]


class Sealer(_Half):
    """Seals frames in order."""

    def __init__(self, session: LinkSession) -> None:
        super().__init__(session.send_key, session.aad_prefix(outgoing=True))

    def seal(
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
    ) -> memoryview:
        """Seal a frame; returns its bytes, valid until the next call. Raises ProtocolError, SealError."""
        length = 0
        for part in parts:
            length += len(part)
        if length != self._length:
            if length + TAG_BYTES > MAX_BODY:
                raise ProtocolError(f"A frame body of {length} bytes is beyond {MAX_BODY - TAG_BYTES}.")
            self._fit(length)
        self._step()
        seq, body_len = self._seq, length + TAG_BYTES
        header = FrameHeader(kind, flags, dtype, 0, body_len, pos, seq, request_id, *layers, rows, plan_gen)
        pack_into(self._buffer, _PREFIX, header)
        if len(parts) == 1:
            text: Buffer = parts[0]
        else:
            text, at = self._text, 0
            for part in parts:
                text[at : at + len(part)] = part
                at += len(part)
        self._aead.encrypt_into(self._nonce, text, self._aad, self.body)
        self._seq += 1
        return self.frame


class Opener(_Half):
    """Opens frames in order. The caller reads into `header`, then into `room(header)`, then calls `open`."""

    def __init__(self, session: LinkSession) -> None:
        super().__init__(session.recv_key, session.aad_prefix(outgoing=False))

    def look(self) -> FrameHeader:
        """Parse and check the header, not yet authenticated. Raises ProtocolError, SealError."""
        header = parse(self.header)
        if header.seq != self._seq or header.key_epoch:
            raise SealError(f"Frame {header.seq} came where {self._seq} was due: dropped, repeated or reordered.")
        return header

    def room(self, header: FrameHeader) -> memoryview:
        """Buffer for the ciphertext of this frame; `look` has checked its length."""
        length = header.body_len - TAG_BYTES
        if length != self._length:
            if length > self._room:
                whole = bytes(self.header)
                self._make_room(length)
                self.header[:] = whole
            self._fit(length)
        return self.body

    def open(self) -> memoryview:
        """Decrypt the frame in the buffer; the plaintext is valid until the next frame is read, or longer after
        `leave`.

        Raises SealError after wiping the unverified plaintext that `decrypt_into` leaves in the buffer.
        """
        self._step()
        try:
            self._aead.decrypt_into(self._nonce, self.body, self._aad, self._text)
        except InvalidTag as error:
            self._text[:] = bytes(self._length)
            raise SealError("A frame was changed on the way, or sealed for another link.") from error
        self._seq += 1
        return self._text

    def leave(self, spare: bytearray | None) -> None:
        """Keep the last plaintext valid. Later ones use `spare` if it has the right size, else new memory."""
        if spare is None or len(spare) != self._room:
            spare = bytearray(self._room)
        self._plain = memoryview(spare)
        self._fit(self._length)

    def open_frame(self, frame: Buffer) -> tuple[FrameHeader, memoryview]:
        if len(frame) < HEADER.size:
            raise ProtocolError("A frame ends within its header.")
        self.header[:] = frame[: HEADER.size]
        header = self.look()
        if len(frame) != HEADER.size + header.body_len:
            raise ProtocolError("A frame is not as long as its header says.")
        self.room(header)[:] = frame[HEADER.size :]
        return header, self.open()
