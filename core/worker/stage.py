"""The layers of this worker, with the caches of every handle that runs through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple

import mlx.core as mx

from core.engine.handle_shapes import HandleShape, after, sources, target, used_up
from core.engine.ring_work import Copy, Drop, Extend, Extract, Finalise, Keep, Merge, Op, PrepareRows, Restore, Trim
from core.errors import ProtocolError, SessionError, StageFailed
from core.link.arrays import Arrived, clear, overwrite, unpacked
from core.link.frames import Buffer
from core.models.metal import fault_of
from core.models.slicing import cache_state
from core.models.slicing.slots import Slice
from core.worker.telemetry import StageMeter

CLEAR_CACHE_EVERY: Final = 256
# steps of this size belong to a prompt; freeing memory after smaller ones, too, panics some Macs
PROMPT_TOKENS: Final = 64
# errors of mlx, and of mlx-lm's code for unsupported families
_FAILURES: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


# from caches, position and number of rows: inputs to fill in, and outputs; None if it can't be built yet
_Build = Callable[[list[Any], "int | mx.array", int], "tuple[list[mx.array], list[mx.array]] | None"]
# from a handle and the logits of its next output: tokens [B, 1] for the step after it, neither computed yet; None if
# they must be known first
Foresee = Callable[[int, mx.array], "mx.array | None"]


class _HeldCaches(NamedTuple):
    rows: HandleShape
    caches: list[Any]
    awaited: frozenset[int] = frozenset()  # caches that come from elsewhere, one by one or token by token
    pasted: int = 0  # tokens of these that are there


class _Prepared(NamedTuple):
    """The graph of the next step of `held`, one position a row."""

    held: _HeldCaches
    blank: list[mx.array]  # placeholders for the input, or the tokens of a larger graph
    caches: list[Any]  # after the step
    out: list[mx.array]  # outputs
    is_part: bool = False  # of a larger graph

    def takes(self, held: _HeldCaches, arrived: Sequence[Arrived]) -> bool:
        """Write `arrived` into the placeholders; False if it does not fit."""
        if self.is_part:
            return self.held is held and arrived[0] is self.blank[0]
        if self.held is not held or [_kind(a) for a in self.blank] != [_kind(a) for a in arrived]:
            return False
        for blank, array in zip(self.blank, arrived, strict=True):
            overwrite(blank, array)
        return True


class LoadedStage:
    """The layers and the caches of every handle, in `kv_bits` bits if given.

    Methods raise ProtocolError for requests that no honest head sends, which leave the handle unchanged, and
    StageFailed if MLX or mlx-lm's code for this family fails: the handle is useless then.
    """

    def __init__(self, layers: Slice, meter: StageMeter, kv_bits: int | None = None) -> None:
        self.layers = layers
        self.meter = meter
        self._kv_bits = kv_bits
        self._held: dict[int, _HeldCaches] = {}
        self._stepped: dict[int, None] = {}  # handles with a step of one position a row since `prepare`
        self._prepared: dict[int, _Prepared] = {}
        self._put_out: dict[int, None] = {}  # the same for outputs
        self._prepared_outputs: dict[int, _Prepared] = {}
        self._calls = 0

    def reset(self) -> None:
        self._held.clear()
        self._stepped, self._put_out = {}, {}
        self._forget_prepared()
        mx.clear_cache()

    @property
    def handles(self) -> int:
        return len(self._held)

    def position(self, handle: int) -> int:
        return self._get(handle).rows.position

    def nbytes(self, handle: int) -> int:
        return self.layers.caches.nbytes(self._get(handle).caches)

    def compose(self, ops: Sequence[Op]) -> None:
        """Apply `ops`. If one fails, all handles that they make, change or drop are forgotten."""
        self._forget_prepared()  # caches that a prepared graph shares would be copied on write
        try:
            with self.computing():
                for op in ops:
                    self._apply(op)
                # lazy arrays keep all their inputs alive
                made = [self._held[handle] for handle in {target(op) for op in ops} & self._held.keys()]
                mx.eval([self.layers.caches.states(held.caches) for held in made if not held.awaited])
        except StageFailed:
            for op in ops:
                self._forget(target(op), *used_up(op))
            raise
        if any(isinstance(op, Drop) for op in ops):
            mx.clear_cache()

    def embed(self, handle: int, tokens: mx.array, *, ahead: bool = False) -> list[mx.array]:
        """Token ids [B, L] to boundary arrays [B, L, ...]. With `ahead`, neither of them is computed yet."""
        self._with_rows(handle, tokens.shape[0])
        return self._step(
            handle, [tokens], lambda held: self.layers.embed(tokens, held.caches, _offset(held.rows)), ahead=ahead
        )

    def run(self, handle: int, boundary: Sequence[Arrived], position: int) -> list[mx.array]:
        """The previous stage's boundary [B, L, ...] through these layers, after `position` tokens. Only once a step."""
        if position != (expected := self._arrived(handle, boundary).rows.position):
            raise ProtocolError(f"A step for position {position} came where {expected} was next.")
        return self._step(
            handle,
            boundary,
            lambda held: self.layers.run(list(map(unpacked, boundary)), held.caches, _offset(held.rows)),
        )

    def prepare(self, foresee: Foresee | None = None) -> None:
        """Build the graphs for a repetition of the last steps and outputs, while there is nothing else to do; one graph
        for both if `foresee` gives the tokens between them. Changes nothing.
        """
        if not self.layers.builds_ahead:
            return
        put_out, self._put_out = self._put_out, {}
        stepped, self._stepped = self._stepped, {}
        try:
            for handle in put_out:
                self._prepare(self._prepared_outputs, handle, self.layers.build_next_output)
            for handle in stepped:
                self._prepare_step(handle, foresee)
        except _FAILURES as error:
            if fault := fault_of(error):
                raise fault from error
            # filled in when the step is here

    def _prepare_step(self, handle: int, foresee: Foresee | None) -> None:
        tokens = None
        if foresee and self.layers.start == 0 and (before := self._prepared_outputs.get(handle)):
            tokens = foresee(handle, before.out[0])
        if tokens is None:
            self._prepare(self._prepared, handle, self.layers.build_next)
        elif not self._prepare(self._prepared, handle, partial(self.layers.build_next, tokens=tokens), is_part=True):
            self._prepared_outputs.pop(handle, None)  # the model needs values that don't exist yet

    def _prepare(self, prepared: dict[int, _Prepared], handle: int, build: _Build, *, is_part: bool = False) -> bool:
        held = self._held.get(handle)
        if held is None or handle in prepared:
            return False
        caches = self.layers.caches.copy(held.caches)
        built = build(caches, _offset(held.rows), len(held.rows.tokens))
        if built:
            for blank in () if is_part else built[0]:
                clear(blank)  # now, not when its input is there
            prepared[handle] = _Prepared(held, built[0], caches, built[1], is_part)
        return built is not None

    def _forget_prepared(self) -> None:
        self._prepared.clear()
        self._prepared_outputs.clear()

    def _step(
        self,
        handle: int,
        arrived: Sequence[Arrived],
        build: Callable[[_HeldCaches], list[mx.array]],
        *,
        ahead: bool = False,
    ) -> list[mx.array]:
        held, prepared = self._held[handle], self._prepared.pop(handle, None)
        with self.computing():
            if prepared and prepared.takes(held, arrived):
                out, self._held[handle] = prepared.out, held._replace(caches=prepared.caches)
            else:
                out = build(held)
            if self.layers.start == 0:
                self.meter.lap("embed")
            del held, prepared  # MLX writes in place only without other references
            self._advance(handle, arrived[0].shape[1], out, waits=not ahead)
        if arrived[0].shape[1] == 1:
            self._stepped[handle] = None
        return out

    def output(self, handle: int, boundary: Sequence[Arrived], *, every: bool = False) -> mx.array:
        """Norm and output head on the last layer's result: logits [B, V] of the last position, not computed yet; with
        `every` [B, L, V] and lazy, since mlx-lm requests those of a prompt and drops them.
        """
        held, prepared = self._arrived(handle, boundary), self._prepared_outputs.pop(handle, None)
        is_begun = every
        with self.computing():
            if prepared and not every and prepared.takes(held, boundary):
                (logits,) = prepared.out
                is_begun = handle in self._prepared and self._prepared[handle].is_part
            else:
                arrays = list(map(unpacked, boundary))
                logits = self.layers.output(arrays, held.caches, _offset(held.rows), every=every)
            if not is_begun:
                mx.async_eval(logits)
        if not every and boundary[0].shape[1] == 1:
            self._put_out[handle] = None
        self.meter.lap("logits_compute")
        return logits

    def whole(self, handle: int, tokens: mx.array, *, every: bool = False, ahead: bool = False) -> mx.array:
        """Token ids [B, L] through the whole model: logits like `output`. With `ahead`, neither is computed yet."""
        held = self._with_rows(handle, tokens.shape[0])
        with self.computing():
            logits = self.layers.whole(tokens, held.caches, every=every, ahead=ahead)
            del held  # MLX writes in place only without other references
            # the last layer's result needs all ranks, which all compute it now
            out = [] if every and not self.layers.rank else [logits]
            self._advance(handle, tokens.shape[1], out, waits=not ahead)
        return logits

    def pack(self, handle: int, index: int) -> bytes:
        held = self._get(handle)
        if held.rows.is_batch:
            raise ProtocolError(f"Handle {handle} is a batch, which gives no single row.")
        with self.computing():
            return b"".join(cache_state.pack(held.caches[index]))

    def check_awaited(self, handle: int, index: int, count: int) -> None:
        """Check that cache `index` of `handle` is awaited, in `count` bytes. Raises ProtocolError, SessionError."""
        held = self._held.get(handle)
        if held is None or index not in held.awaited:
            raise ProtocolError(f"Cache {index} came for handle {handle}, which does not wait for it.")
        if count != (expected := cache_state.packed_bytes(held.caches[index])):
            raise SessionError(f"Layer cache {index} has {count} bytes, where this model's has {expected}.")

    def fill(self, handle: int, index: int, data: bytes | bytearray) -> None:
        held = self._held[handle]
        with self.computing():
            cache_state.fill(held.caches[index], data)
            mx.eval(held.caches[index].state)
        self._held[handle] = held._replace(awaited=held.awaited - {index})

    def cut(self, handle: int, row: int, start: int, stop: int) -> dict[int, cache_state.Piece]:
        """The KV of tokens [start, stop) of a row from each cache of this stage but states. Raises SessionError."""
        with self.computing():
            caches = self._row(handle, row)
            spans = {index: cache_state.cut(caches[index], start, stop) for index in self._others(caches)}
            mx.eval([piece.arrays for piece in spans.values()])
        return spans

    def states(self, handle: int, row: int) -> dict[int, int]:
        """Sizes in bytes of the states among this stage's caches, of one row, by number."""
        caches = self._row(handle, row)
        numbers = set(self.layers.caches.indices) - set(self._others(caches))
        return {index: cache_state.packed_bytes(cache_state.settled(caches[index])) for index in sorted(numbers)}

    def pack_states(self, handle: int, row: int, position: int, wanted: Sequence[int]) -> dict[int, bytes]:
        """The `wanted` states of this stage after `position` tokens of a row. Raises SessionError."""
        caches = self._row(handle, row)
        if self._get(handle).rows.tokens[row] != position:
            raise SessionError(f"A state at {position} tokens was requested of a row at another position.")
        own = [index for index in wanted if index in self.layers.caches.indices]
        with self.computing():
            return {index: b"".join(cache_state.pack(caches[index])) for index in own}

    def paste(self, handle: int, start: int, stop: int, data: Mapping[int, Buffer]) -> None:
        """Add the KV of tokens [start, stop) to this stage's awaited caches; windows may lack some. With `start` equal
        to `stop`, after all tokens, `data` are states. Raises SessionError if the data is wrong.
        """
        held = self._held.get(handle)
        if held is not None and start == stop == held.rows.position == held.pasted:
            for index, state in data.items():
                self.check_awaited(handle, index, len(state))
                self.fill(handle, index, bytes(state))
            return
        if held is None or not held.awaited or held.pasted != start or not start < stop <= held.rows.position:
            raise ProtocolError(f"Tokens {start} to {stop} came for handle {handle}, which does not wait for them.")
        with self.computing():
            others = self._others(held.caches)
            for index in others:
                cache_state.paste(held.caches[index], start, stop, data.get(index))
            mx.eval([cache_state.arrays(held.caches[index]) for index in others])
        there = frozenset(others if stop == held.rows.position else ())
        self._held[handle] = held._replace(pasted=stop, awaited=held.awaited - there)

    def _row(self, handle: int, row: int) -> list[Any]:
        held = self._get(handle)
        if not row < len(held.rows.tokens):
            raise ProtocolError(f"Handle {handle} has no row {row}.")
        return self.layers.caches.extract(held.caches, row) if held.rows.is_batch else held.caches

    def _others(self, caches: Sequence[Any]) -> list[int]:
        return [index for index in self.layers.caches.indices if not cache_state.is_state(caches[index])]

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Time MLX; its errors (a kernel that this device lacks) become StageFailed, or GpuFault."""
        with self.meter.compute:
            try:
                yield
            except _FAILURES as error:
                if fault := fault_of(error):
                    raise fault from error
                raise StageFailed(f"MLX could not compute this stage: {error}") from error

    def _get(self, handle: int) -> _HeldCaches:
        if handle not in self._held:
            raise ProtocolError(f"Handle {handle} holds no rows.")
        if self._held[handle].awaited:
            raise ProtocolError(f"The caches of handle {handle} are not complete yet.")
        return self._held[handle]

    def _with_rows(self, handle: int, count: int) -> _HeldCaches:
        held = self._get(handle)
        if len(held.rows.tokens) != count:
            raise ProtocolError(f"A step of {count} rows came for handle {handle}, which has {len(held.rows.tokens)}.")
        return held

    def _arrived(self, handle: int, boundary: Sequence[Arrived]) -> _HeldCaches:
        lead = boundary[0].shape[:2] if boundary else ()
        expected = prod(lead) * self.layers.incoming_bytes_per_token if len(lead) == 2 else 0
        if not expected or sum(array.nbytes for array in boundary) != expected:
            shapes = [array.shape for array in boundary]
            raise ProtocolError(f"A frame has arrays of the shapes {shapes}, which do not fit this stage.")
        return self._with_rows(handle, lead[0])

    def _forget(self, *handles: int) -> None:
        for handle in handles:
            self._held.pop(handle, None)
            self._stepped.pop(handle, None)
            self._put_out.pop(handle, None)

    def _apply(self, op: Op) -> None:
        if isinstance(op, Drop):
            self._forget(op.handle)
            return
        made, given, gone = target(op), sources(op), used_up(op)
        held = [self._get(handle) for handle in given]
        if len(set(given)) < len(given) or (made in self._held and made not in gone):
            raise ProtocolError(f"{type(op).__name__} names a handle twice, or makes {made}, which is there already.")
        rows = after(op, [each.rows for each in held])
        self._check_possible(op, held)
        caches = self._caches(op, [each.caches for each in held])
        self._forget(*gone)
        self._held[made] = _HeldCaches(
            rows, caches, frozenset(self.layers.caches.indices if isinstance(op, Restore) else ())
        )

    def _check_possible(self, op: Op, held: Sequence[_HeldCaches]) -> None:
        if isinstance(op, Restore) and not op.tokens:
            raise ProtocolError("A row of no tokens is a new one.")
        if isinstance(op, Merge) and self._kv_bits:
            raise StageFailed("Rows that are kept in few bits cannot share a batch.", "Load it without --kv-bits.")
        if isinstance(op, Trim) and not held[0].rows.is_trimmable(self.layers.caches.trim_limit):
            raise StageFailed("This model's caches hold too much for the last tokens to be taken off.", "Start again.")

    def _caches(self, op: Op, given: list[list[Any]]) -> list[Any]:
        layers = self.layers
        match op:
            case Merge():
                return layers.caches.merge(given)
            case Extend():
                return layers.caches.extend(*given)
            case Keep():
                return layers.caches.keep(given[0], op.rows)
            case Copy():
                return layers.caches.copy(given[0])
            case Extract():
                return layers.caches.extract(given[0], op.row)
            case Trim():
                return layers.caches.trim(given[0], op.count)
            case PrepareRows():
                return layers.caches.prepare(given[0], op.left_padding, op.lengths, op.right_padding)
            case Finalise():
                return layers.caches.finalise(given[0])
            case Restore():
                return layers.outline(op.tokens, self._kv_bits)
            case _:
                return layers.caches.new()

    def _advance(self, handle: int, count: int, out: list[mx.array], *, waits: bool = True) -> None:
        rows, caches = self._held[handle][:2]
        if self._kv_bits:
            caches = self.layers.caches.quantise(caches, self._kv_bits)
        evaluate = mx.eval if waits else mx.async_eval
        evaluate(out, self.layers.caches.states(caches))
        self._held[handle] = _HeldCaches(rows.fed(count), caches)
        self._calls += 1
        self.meter.lap("layers_compute")
        if count >= PROMPT_TOKENS or self._calls % CLEAR_CACHE_EVERY == 0:
            mx.clear_cache()


def _kind(array: Arrived) -> tuple[tuple[int, ...], mx.Dtype]:
    return array.shape, array.dtype


def _offset(rows: HandleShape) -> int | mx.array:
    """Tokens in the caches: a number for a plain row, an array for a batch."""
    return mx.array(rows.tokens) if rows.is_batch else rows.tokens[0]
