"""Converts the cache of one layer and one row to bytes and back, for every kind of cache.

The bytes hold only the cache's arrays, encoded as in a frame (`core.link.arrays`). A *settled* cache equals one whose
tokens came in a single step; its offsets and ring position follow from its kind and its number of tokens. The reader
therefore knows every shape beforehand and trusts only the values: without a GPU, MLX can corrupt the memory of the
process with an array of another shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final, NamedTuple

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import ArraysCache, CacheList, ChunkedKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from core.errors import ProtocolError, SessionError
from core.link.arrays import decode_arrays, encode_arrays
from core.link.frames import Buffer
from core.models.slicing.boundary import leaves

# more tokens than any fixed-size state remembers
FEW: Final = 64
KEYS: Final = (KVCache, QuantizedKVCache, RotatingKVCache, ChunkedKVCache)
KNOWN: Final = (*KEYS, ArraysCache)
# kinds that keep each token's entries at the token's own position; all others except windows are states
CUTTABLE: Final = (KVCache, QuantizedKVCache)


def pack(cache: Any) -> list[Buffer]:
    """Bytes of a plain row's cache, in buffers that keep its arrays alive. Evaluates them."""
    return encode_arrays([_as_sent(array) for array in arrays(settled(cache))])


def dry_length(caches: Sequence[Any], tokens: int) -> int:
    """Tokens in a dry forward that suffice for `outline` to derive these caches after `tokens` tokens."""
    known = all(isinstance(part, KNOWN) for cache in caches for part in parts(cache))
    return min(tokens, FEW) if known else tokens


def outline(cache: Any, tokens: int) -> Any:
    """A settled cache of `tokens` tokens with unevaluated zeros. `cache`: one of the same layer after a dry forward of
    `dry_length` tokens.
    """
    made = settled(cache)
    for part in parts(made):
        _replace(part, [mx.zeros(array.shape, array.dtype) for array in arrays(part)])
        if isinstance(part, KEYS) and not part.empty():
            _stretch(part, tokens)
    return made


def fill(cache: Any, data: Buffer) -> None:
    """Load packed bytes into `cache`, an `outline`. Raises SessionError if they don't fit."""
    holes = [_as_sent(array) for array in arrays(cache)]
    sent = _decoded(data)
    found, expected = ([(array.dtype, array.shape) for array in each] for each in (sent, holes))
    if found != expected:
        raise SessionError(f"A layer holds {_in_words(sent)}, where this model holds {_in_words(holes)}.")
    _replace(cache, [array.astype(hole.dtype) for array, hole in zip(sent, arrays(cache), strict=True)])


class Piece(NamedTuple):
    """The entries of a cache for the tokens from `first` to the end of the requested range, as arrays."""

    first: int
    needs: int | None  # first token that a window needs to continue; None: the kind keeps all tokens
    arrays: list[mx.array]


def cut(cache: Any, start: int, stop: int) -> Piece:
    """Entries of a plain row's cache for the tokens [start, stop), not evaluated; a window may hold only the last ones.
    Raises SessionError if the cache cannot be cut at a token, or lacks these tokens.
    """
    if any(
        not part.empty() and not 0 <= start < stop <= part.offset for part in parts(cache) if isinstance(part, KEYS)
    ):
        raise SessionError(f"Tokens {start} to {stop} are not in the cache.")
    if window := _window(cache):
        held = _in_order(cache)
        base = cache.offset - held[0].shape[-2] if held else 0  # first token in the cache
        first = min(max(start, base), stop)
        pieces = [mx.contiguous(array[..., first - base : max(stop - base, 0), :]) for array in held if stop > base]
        return Piece(first, max(0, stop - window), pieces)
    if is_state(cache):
        raise SessionError(f"A {type(cache).__name__} cannot be cut at a token.")
    return Piece(start, None, [mx.contiguous(array[..., start:stop, :]) for array in arrays(cache)])


def paste(cache: Any, start: int, stop: int, data: Buffer | None) -> None:
    """Load the bytes of a `cut` into `cache`, an `outline`; not evaluated. A window may lack entries it doesn't need.
    Raises SessionError if they don't fit; the cache is unusable then.
    """
    holes, window = arrays(cache), _window(cache)
    base = cache.offset - holes[0].shape[-2] if window and holes else 0  # first token in the cache
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
    """Whether the cache is a state, which can be used only as a whole, after its last token."""
    return not _window(cache) and any(type(part) not in CUTTABLE for part in parts(cache))


def _window(cache: Any) -> int:
    """Size in tokens of a sliding-window cache; 0 for other kinds."""
    if type(cache) is RotatingKVCache and not cache.keep:
        return int(cache.max_size)
    return int(cache.chunk_size) if type(cache) is ChunkedKVCache else 0


def _in_order(cache: Any) -> list[mx.array]:
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
    """Bytes that `fill` expects for a settled cache."""
    holes = [_as_sent(array) for array in arrays(cache)]
    return 1 + sum(2 + 4 * hole.ndim + hole.nbytes for hole in holes)


def settled(cache: Any) -> Any:
    """Copy of `cache` as if its tokens came in one step, without spare memory; arrays are shared."""
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
    """Reorder a window by token, without the entries that the next step pushes out."""
    keys, values = (cache._temporal_order(array) for array in (cache.keys, cache.values))
    excess = keys.shape[2] - cache.max_size
    cache.keys, cache.values = (cache._trim(excess, array) for array in (keys, values))
    cache._idx = cache.keys.shape[2]


def _stretch(cache: Any, tokens: int) -> None:
    """Give a settled key-value cache the shapes of `tokens` tokens."""
    held = tokens
    if isinstance(cache, RotatingKVCache):
        cache._idx = held = min(tokens, cache.max_size)
    elif isinstance(cache, ChunkedKVCache):
        held = min(tokens, cache.chunk_size)
        cache.start_position = tokens - held
    cache.offset = tokens
    _replace(cache, [mx.zeros((*a.shape[:-2], held, a.shape[-1]), a.dtype) for a in arrays(cache)])


def parts(cache: Any) -> Iterator[Any]:
    """The simple caches that a cache consists of, or the cache itself."""
    if isinstance(cache, CacheList):
        for part in cache.caches:
            yield from parts(part)
    else:
        yield cache


def arrays(cache: Any) -> list[mx.array]:
    """Arrays of a cache, in the order of its attributes' names."""
    return [array for part in parts(cache) for name in sorted(vars(part)) for array in leaves(vars(part)[name])]


def _replace(cache: Any, arrays: Sequence[mx.array]) -> None:
    """Replace the arrays listed by `arrays`; lists of arrays become the cache's own."""
    remaining = iter(arrays)
    for part in parts(cache):
        held = vars(part)
        for name in sorted(held):
            if leaves(held[name]):
                held[name] = tree_map(lambda x: next(remaining) if isinstance(x, mx.array) else x, held[name])


def _as_sent(array: mx.array) -> mx.array:
    """Convert 64-bit token ids to 32 bits."""
    return array.astype(mx.int32) if array.dtype == mx.int64 else array


def _in_words(arrays: Sequence[mx.array]) -> str:
    return ", ".join(f"{str(array.dtype).rpartition('.')[2]} {list(array.shape)}" for array in arrays) or "nothing"
