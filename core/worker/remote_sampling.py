"""Sampling on another Mac, which has the output head: the options travel with every admission."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final

import mlx.core as mx
import msgspec

from core.engine.constraints import Grammars
from core.engine.requests import Admit, Request
from core.engine.sampling import Picked, RowSampler, pick_all, pick_each
from core.errors import ProtocolError, UsageError
from core.link.frames import Buffer
from core.settings import MAX_CONTROL_BODY, MAX_LANE_ROWS
from core.worker.work_frames import Wrote, decoded

ROWS_LIMIT: Final = 16 * MAX_LANE_ROWS
ADMISSION_BYTES: Final = MAX_CONTROL_BODY // 2
WRITTEN_AT_ONCE: Final = 4096  # tokens, five bytes each

_choices = msgspec.msgpack.Decoder(list[list[Picked]])


class RemoteSamplers:
    """The samplers of running rows, by request id; no row is longer than `context` tokens."""

    def __init__(self, vocabulary: int, context: int, grammars: Grammars) -> None:
        self._vocabulary, self._context, self._grammars = vocabulary, context, grammars
        self._rows: dict[bytes, RowSampler] = {}

    def reset(self) -> None:
        self._rows.clear()

    def admit(self, row: Admit) -> None:
        """Add a row. Raises UsageError for options that this vocabulary can't meet, ProtocolError for too many rows."""
        if len(self._rows) >= ROWS_LIMIT:
            raise ProtocolError(f"More than {ROWS_LIMIT} rows were admitted.")
        if not all(0 <= token < self._vocabulary for token in row.prompt):
            raise ProtocolError("A row was admitted with tokens that the model does not have.")
        if row.written >= self._context:  # each written token takes time
            raise ProtocolError(f"A row was admitted with {row.written} tokens in a context of {self._context}.")
        self._rows[row.request] = RowSampler(row, self._vocabulary, self._grammars.of(row))

    def follow(self, request: bytes, tokens: Sequence[int]) -> None:
        row = self._rows.get(request)
        if row is None or not all(token < self._vocabulary for token in tokens):
            raise ProtocolError("Tokens were reported as written that no row here can have.")
        row.follow(tokens)

    def dismiss(self, request: bytes) -> None:
        self._rows.pop(request, None)

    def choose(self, askers: Sequence[bytes], logits: mx.array) -> list[list[Picked]]:
        """A token per row from logits [B, V]; or for one row a token at each position of logits [1, L, V], as if the
        tokens between were the head's draft, which the head checks. If the row's tokens depend on earlier ones, its
        constraint must force them. Raises ProtocolError.
        """
        rows = [self._rows.get(asker) for asker in askers]
        samplers = [row for row in rows if row]
        if len(samplers) != len(rows) or len(rows) != logits.shape[0]:
            raise ProtocolError(f"Tokens were requested for {len(rows)} rows, and {len(samplers)} of them run.")
        if logits.ndim == 2:
            return [[picked] for picked in pick_all(samplers, logits)]
        if len(samplers) == 1 and samplers[0].is_plain:
            return [pick_each(samplers[0], logits[0])]
        forced = [samplers[0].forced() if len(samplers) == 1 else None for _ in range(logits.shape[1] - 1)]
        sure = [picked for picked in forced if picked]
        if len(sure) != len(forced):
            raise ProtocolError("A draft came for a row that can't have one here.")
        return [[*sure, *pick_all(samplers, logits[:, -1])]]


def check_admission(row: Admit) -> None:
    if len(msgspec.msgpack.encode(row)) > ADMISSION_BYTES:
        what = "The sampling of this request is too long to send to the Mac that chooses the tokens."
        fix = "Ask with a shorter schema, logit bias or penalty context, or load the model as private."
        raise UsageError(what, fix)


def written_of(request: Request) -> list[Wrote]:
    """The written tokens of an answer for the Mac that samples, each message in its own frame."""
    row, written = bytes.fromhex(request.request_id), request.written if request.constraint else []
    starts = range(0, len(written), WRITTEN_AT_ONCE)
    return [Wrote(row, tuple(written[start : start + WRITTEN_AT_ONCE])) for start in starts]


def encode_choices(rows: Sequence[Sequence[Picked]]) -> list[Buffer]:
    return [msgspec.msgpack.encode(rows)]


def decode_choices(payload: Buffer, rows: int, positions: int, vocabulary: int) -> list[list[Picked]]:
    """Check tokens from another Mac: `rows` rows, `positions` tokens each. Raises ProtocolError."""
    told = decoded(_choices.decode, payload, "A token frame")
    if len(told) != rows or any(len(row) != positions for row in told):
        raise ProtocolError(f"A token frame came with {[len(row) for row in told]} tokens for {rows} rows.")
    choices = [choice for row in told for choice in row]
    ids = [token for c in choices for token in (c.token, *(token for token, _ in c.top))]
    values = [value for c in choices for value in (c.logprob or 0.0, *(value for _, value in c.top))]
    if not all(token < vocabulary for token in ids) or not all(map(isfinite, values)):
        raise ProtocolError(f"A token frame names tokens that are not below {vocabulary}, or no numbers.")
    return told
