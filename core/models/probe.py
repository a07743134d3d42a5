"""One lazy forward of a whole model that is watched and never evaluated: what a slice needs to know about a family.

It finds in which order layers run, which cache each one uses, which arrays pass from layer to layer, which parameters
are read before the first layer and which after the last, and so where the model may be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from core.models.boundary import Boundary, is_plain, leaves

# a prime that is no usual count of heads, so that [batch, position, ...] is told from [batch, head, ...]
POSITIONS: Final = 11


def swap_class(module: nn.Module, **methods: Callable[..., Any]) -> None:
    """Gives one module other methods and leaves its attributes, its parameter paths and isinstance as they are."""
    cls = type(module)
    object.__setattr__(module, "__class__", type(cls.__name__, (cls,), methods))


class Probe:
    """What one dry run of `model` showed.

    `layer_paths[i]`: parameter path of layer i. `cache_of[i]`: index of its cache in the model's cache list, or None.
    `boundaries[i]`: what leaves layer i. `cuts`: positions c such that layers below c and from c on may run apart;
    c = number of layers means that norm and head may run apart from the last layer. `needs_tokens`: layers read
    values made from token ids, so every stage would have to see them. `embed`, `output` and `shared` name the
    parameters outside the layers that are read before them, after them, and between.
    """

    def __init__(self, model: nn.Module) -> None:
        layers = list(model.layers)
        paths = {id(module): path for path, module in model.named_modules()}
        self.layers = len(layers)
        self.layer_paths = [paths[id(layer)] for layer in layers]
        caches = make_prompt_cache(model)
        watch = _Watch(caches)
        outside = [(p, m) for p, m in model.named_modules() if not self.is_inside(p)]
        with watch.on(outside, layers):
            logits = model(mx.zeros((1, POSITIONS), mx.int32), cache=caches)
        self.vocab = int(logits.shape[-1])
        self.embed, self.shared, self.output = watch.read
        self.needs_tokens = False
        self.cache_of: list[int | None] = [None] * self.layers
        self.boundaries: list[Boundary] = []
        self.cuts: frozenset[int] = frozenset()
        if [call.layer for call in watch.calls] == list(range(self.layers)):
            self._judge(watch.calls, len(caches))
        # the watched classes form a cycle with the notes, which would hold every tensor's file open until it is found
        watch.calls.clear()

    def is_inside(self, path: str) -> bool:
        """Whether a module or parameter path belongs to one of the layers."""
        return self.layer_of(path) is not None

    def layer_of(self, path: str) -> int | None:
        """The layer that a parameter path belongs to."""
        for layer, prefix in enumerate(self.layer_paths):
            if path == prefix or path.startswith(prefix + "."):
                return layer
        return None

    def _judge(self, calls: list[_Call], cache_count: int) -> None:
        self.cache_of = [call.cache for call in calls]
        self.needs_tokens = any(_reads_tokens(call, before) for before, call in pairwise(calls))
        owned = {index for index in self.cache_of if index is not None}
        if owned != set(range(cache_count)) or not all(call.is_plain for call in calls) or _reads_caches_aside(calls):
            return
        illegal = _shared_caches(calls) | _far_reads(calls)
        sent = [_sent(call, after) for call, after in pairwise(calls)]
        sent.append(sent[-1] if sent else frozenset({0}))
        self.boundaries = [Boundary(call.value, s) for call, s in zip(calls, sent, strict=True)]
        self.cuts = frozenset(range(1, self.layers + 1)) - illegal


class _Call:
    """One call of a layer: its arguments' arrays, its cache, its return value."""

    def __init__(self, layer: int, cache: int | None, given: list[mx.array], mutable: bool, value: Any) -> None:
        self.layer = layer
        self.cache = cache
        self.given = given
        self.value = value
        self.made = leaves(value)
        # a dict handed to a layer is a side channel that a cut would sever
        self.is_plain = is_plain(value) and bool(self.made) and _along_positions(self.made[0]) and not mutable


def _along_positions(array: mx.array) -> bool:
    """Whether `array` has the axes [batch, position, ...] of hidden states."""
    return array.ndim > 2 and tuple(array.shape[:2]) == (1, POSITIONS)


def _ids(arrays: list[mx.array]) -> set[int]:
    return {id(array) for array in arrays}


def _reads_tokens(call: _Call, before: _Call) -> bool:
    """Whether a layer gets, beside what the previous one returned, another array with a value for every position."""
    made = _ids(before.made)
    handed_on = [a for a in call.given if id(a) in made]
    beside = [a for a in call.given if id(a) not in made and _along_positions(a) and _is_float(a)]
    # where nothing is handed on as it was made, the array beside is the hidden state, scaled between the layers
    return bool(handed_on and beside)


def _is_float(array: mx.array) -> bool:
    return bool(mx.issubdtype(array.dtype, mx.floating))


def _reads_caches_aside(calls: list[_Call]) -> bool:
    """Whether a layer gets an array that no layer returned and that is no mask: keys taken out of a cache."""
    known = _ids(calls[0].given)
    for call in calls:
        for array in call.given:
            looks_like_keys = array.ndim == 4 and array.shape[-1] != POSITIONS and not _along_positions(array)
            if id(array) not in known and looks_like_keys and _is_float(array):
                return True
        known |= _ids(call.given) | _ids(call.made)
    return False


def _shared_caches(calls: list[_Call]) -> set[int]:
    """Cuts between two layers that use the same cache."""
    illegal: set[int] = set()
    first: dict[int, int] = {}
    for call in calls:
        if call.cache is not None:
            illegal.update(range(first.setdefault(call.cache, call.layer) + 1, call.layer + 1))
    return illegal


def _far_reads(calls: list[_Call]) -> set[int]:
    """Cuts that an array would have to jump: it is read further on than in the next layer, or it is no hidden state
    (keys and values of an earlier layer, which grow with the context).
    """
    illegal: set[int] = set()
    made: dict[int, tuple[int, bool]] = {}
    for call in calls:
        for array in call.given:
            if id(array) in made:
                source, travels = made[id(array)]
                illegal.update(range(source + 1, call.layer + 1) if not travels else range(source + 1, call.layer))
        made.update((id(array), (call.layer, _along_positions(array))) for array in call.made)
    return illegal


def _sent(call: _Call, after: _Call) -> frozenset[int]:
    """Leaves of a return value that the next layer reads; the first one always, as some families scale it between."""
    read = _ids(after.given)
    return frozenset({0} | {i for i, a in enumerate(call.made) if id(a) in read and _along_positions(a)})


class _Watch:
    """Notes calls of layers and reads of parameters while it is on."""

    def __init__(self, caches: list[Any]) -> None:
        self.calls: list[_Call] = []
        self.read: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        self._caches = {id(cache): index for index, cache in enumerate(caches)}
        self._begun = 0
        self._layers = 0

    @contextmanager
    def on(self, outside: list[tuple[str, nn.Module]], layers: list[nn.Module]) -> Iterator[None]:
        """Watches modules outside the layers for reads and layers for calls; undoes that at the end."""
        self._layers = len(layers)
        before = [(module, type(module)) for _, module in outside] + [(layer, type(layer)) for layer in layers]
        for path, module in outside:
            self._watch_reads(path, module)
        for index, layer in enumerate(layers):
            self._watch_calls(index, layer)
        try:
            yield
        finally:
            for module, cls in before:
                object.__setattr__(module, "__class__", cls)

    def _watch_reads(self, path: str, module: nn.Module) -> None:
        cls = type(module)

        def note(key: str, value: Any) -> Any:
            if isinstance(value, mx.array):
                phase = 0 if self._begun == 0 else 1 if len(self.calls) < self._layers else 2
                self.read[phase].add(f"{path}.{key}" if path else key)
            return value

        def get_item(this: Any, key: str) -> Any:
            return note(key, dict.__getitem__(this, key))

        def get_attr(this: Any, key: str) -> Any:
            return note(key, cls.__getattr__(this, key))

        def get(this: Any, key: str, default: Any = None) -> Any:
            return note(key, dict.get(this, key, default))

        swap_class(module, __getitem__=get_item, __getattr__=get_attr, get=get)

    def _watch_calls(self, index: int, layer: nn.Module) -> None:
        cls = type(layer)

        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            self._begun += 1
            everything = [*args, *kwargs.values()]
            value = cls.__call__(this, *args, **kwargs)
            own = [self._caches[id(a)] for a in everything if id(a) in self._caches]
            mutable = any(isinstance(a, dict) for a in everything)
            self.calls.append(_Call(index, own[0] if own else None, leaves(everything), mutable, value))
            return value

        swap_class(layer, __call__=call)
