"""The cache of one layer, for one row, to bytes and back, whatever its kind.

The bytes are the arrays that the cache holds, as a frame carries them (`core.link.arrays`), and nothing else. All
numbers of a cache, its offsets and its place in a ring, follow from its kind and from how many tokens it holds, once it
is *settled*: as it were if its tokens had come at once. So its reader knows every shape beforehand, and believes
nothing but the values: where MLX runs without a GPU, an array of another shape can corrupt the memory of the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from core.errors import ProtocolError, SessionError
from core.link.arrays import decode_arrays, encode_arrays
from core.link.frames import Buffer
from core.models.slicing.boundary import leaves

# more than any state of a fixed size remembers
FEW: Final = 64
KEYS: Final = (KVCache, QuantizedKVCache, RotatingKVCache, ChunkedKVCache)
KNOWN: Final = (*KEYS, ArraysCache)
# what they hold of a token stays as it is, in the place of that token; all others but windows are states
CUTTABLE: Final = (KVCache, QuantizedKVCache)


def pack(cache: Any) -> list[Buffer]:
    """The bytes of a plain row's cache, in pieces that hold its arrays alive. Evaluates them."""
    return encode_arrays([_as_sent(array) for array in arrays(settled(cache))])


def dry_length(caches: Sequence[Any], tokens: int) -> int:
    """How many tokens a dry forward takes for `outline` to know what caches of this kind hold after `tokens` tokens."""
    known = all(isinstance(part, KNOWN) for cache in caches for part in parts(cache))
    return min(tokens, FEW) if known else tokens


def outline(cache: Any, tokens: int) -> Any:
    """A settled cache of `tokens` tokens, with zeros for what it holds; nothing is evaluated. `cache`: one of the same
    layer behind a dry forward of `dry_length` tokens.
    """
    made = settled(cache)
    for part in parts(made):
        _replace(part, [mx.zeros(array.shape, array.dtype) for array in arrays(part)])
        if isinstance(part, KEYS) and not part.empty():
            _stretch(part, tokens)
    return made


def fill(cache: Any, data: Buffer) -> None:
    """Put what was packed into `cache`, an `outline`. Raises SessionError where it does not belong there."""
    holes = [_as_sent(array) for array in arrays(cache)]
    try:
        sent = decode_arrays(memoryview(data))
    except ProtocolError as error:
        raise SessionError(f"A layer's keys and values do not decode: {error.what}") from error
    found, expected = ([(array.dtype, array.shape) for array in each] for each in (sent, holes))
    if found != expected:
        raise SessionError(f"A layer holds {_in_words(sent)}, where this model holds {_in_words(holes)}.")
    _replace(cache, [array.astype(hole.dtype) for array, hole in zip(sent, arrays(cache), strict=True)])


class Piece(NamedTuple):
    """What a cache holds of the tokens from `first` on, up to those that were asked for, as arrays. `needs`: of a
    window, the first token that it needs to go on behind them; None: it keeps all tokens.
    """

    first: int
    needs: int | None
    arrays: list[mx.array]


def cut(cache: Any, start: int, stop: int) -> Piece:
    """What a plain row's cache holds of the tokens [start, stop), not evaluated; a window may hold the last ones only.
    Raises SessionError where it cannot be cut at a token, or does not hold these.
    """
    if any(
        not part.empty() and not 0 <= start < stop <= part.offset for part in parts(cache) if isinstance(part, KEYS)
    ):
        raise SessionError(f"Tokens {start} to {stop} were asked of a cache that does not hold them.")
    if window := _window(cache):
        held = _in_order(cache)
        base = cache.offset - held[0].shape[-2] if held else 0  # the first token that it holds
        first = min(max(start, base), stop)
        pieces = [mx.contiguous(array[..., first - base : max(stop - base, 0), :]) for array in held if stop > base]
        return Piece(first, max(0, stop - window), pieces)
    if is_state(cache):
        raise SessionError(f"A {type(cache).__name__} cannot be cut at a token.")
    return Piece(start, None, [mx.contiguous(array[..., start:stop, :]) for array in arrays(cache)])


def paste(cache: Any, start: int, stop: int, data: Buffer | None) -> None:
    """Put the bytes of what `cut` gave into `cache`, an `outline`; not evaluated. A window may do without what it does
    not need. Raises SessionError where they do not belong there; then the cache is of no use.
    """
    holes, window = arrays(cache), _window(cache)
    base = cache.offset - holes[0].shape[-2] if window and holes else 0  # the first token that it holds
    low = max(start, base)
    if window and low >= stop:
        return
    pieces = _decoded(data)
    if not (holes or pieces):
        return
    count = pieces[0].shape[-2] if pieces and pieces[0].ndim > 1 else 0
    like = [(hole.dtype, (*hole.shape[:-2], count, hole.shape[-1])) for hole in holes]
    fits = not is_state(cache) and stop - count <= low
    if not fits or (holes and count > stop - start) or [(piece.dtype, piece.shape) for piece in pieces] != like:
        raise SessionError(f"Tokens {start} to {stop} of a layer came as {_in_words(pieces)}.")
    for hole, piece in zip(holes, pieces, strict=True):
        hole[..., low - base : stop - base, :] = piece[..., low - (stop - count) :, :]


def is_state(cache: Any) -> bool:
    """Whether a part of what a cache holds is of no use: it stands behind its last token, as a whole."""
    return not _window(cache) and any(type(part) not in CUTTABLE for part in parts(cache))


def _window(cache: Any) -> int:
    """How many tokens a cache keeps that keeps the last ones only, and all of these; 0: it is another."""
    if type(cache) is RotatingKVCache and not cache.keep:
        return int(cache.max_size)
    return int(cache.chunk_size) if type(cache) is ChunkedKVCache else 0


def _in_order(cache: Any) -> list[mx.array]:
    """The keys and values of a window, in the order of their tokens."""
    if cache.empty():
        return []
    if isinstance(cache, RotatingKVCache):
        return [cache._temporal_order(array) for array in (cache.keys, cache.values)]
    return list(cache.keys_and_values())


def _decoded(data: Buffer | None) -> list[mx.array]:
    if data is None:
        raise SessionError("A part of a layer's keys and values is missing.")
    try:
        return decode_arrays(memoryview(data))
    except ProtocolError as error:
        raise SessionError(f"A part of a layer's keys and values does not decode: {error.what}") from error


def packed_bytes(cache: Any) -> int:
    """How many bytes `fill` takes for `cache`, which is settled."""
    holes = [_as_sent(array) for array in arrays(cache)]
    return 1 + sum(2 + 4 * hole.ndim + hole.nbytes for hole in holes)


def settled(cache: Any) -> Any:
    """A copy of `cache` as if its tokens had come at once, which holds nothing beyond them; arrays are shared."""
    made = copy(cache)
    if isinstance(made, CacheList):
        made.caches = tuple(settled(part) for part in made.caches)
    elif isinstance(made, KEYS) and not made.empty():
        if isinstance(made, ChunkedKVCache):
            made.maybe_trim_front()
        if isinstance(made, RotatingKVCache):
            _unroll(made)
        else:
            made.keys, made.values = made.keys_and_values()
    return made


def _unroll(cache: RotatingKVCache) -> None:
    """The window in the order of its tokens, without those that its next step would push out."""
    keys, values = (cache._temporal_order(array) for array in (cache.keys, cache.values))
    excess = keys.shape[2] - cache.max_size
    cache.keys, cache.values = (cache._trim(excess, array) for array in (keys, values))
    cache._idx = cache.keys.shape[2]


def _stretch(cache: Any, tokens: int) -> None:
    """Make a settled cache of keys and values look as if it held `tokens` tokens."""
    held = tokens
    if isinstance(cache, RotatingKVCache):
        cache._idx = held = min(tokens, cache.max_size)
    elif isinstance(cache, ChunkedKVCache):
        held = min(tokens, cache.chunk_size)
        cache.start_position = tokens - held
    cache.offset = tokens
    _replace(cache, [mx.zeros((*a.shape[:-2], held, a.shape[-1]), a.dtype) for a in arrays(cache)])


def parts(cache: Any) -> Iterator[Any]:
    """A cache that is not made of others, or those that it is made of."""
    if isinstance(cache, CacheList):
        for part in cache.caches:
            yield from parts(part)
    else:
        yield cache


def arrays(cache: Any) -> list[mx.array]:
    """What a cache holds, in the order of its attributes' names."""
    return [array for part in parts(cache) for name in sorted(vars(part)) for array in leaves(vars(part)[name])]


def _replace(cache: Any, arrays: Sequence[mx.array]) -> None:
    """Other arrays in the places of `arrays`; lists that hold them become the cache's own."""
    remaining = iter(arrays)
    for part in parts(cache):
        held = vars(part)
        for name in sorted(held):
            if leaves(held[name]):
                held[name] = tree_map(lambda x: next(remaining) if isinstance(x, mx.array) else x, held[name])


def _as_sent(array: mx.array) -> mx.array:
    """Token ids that a family keeps in 64 bits travel in 32."""
    return array.astype(mx.int32) if array.dtype == mx.int64 else array


def _in_words(arrays: Sequence[mx.array]) -> str:
    return ", ".join(f"{str(array.dtype).rpartition('.')[2]} {list(array.shape)}" for array in arrays) or "nothing"
