"""Traces one lazy forward of a whole model: the layer calls, their arguments, and what they read and made.

Arrays are followed by identity: an array that a layer gets comes from an earlier layer, from code between layers, or
from before the first layer. `probe` derives the cuts. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn

from core.models.slicing.boundary import SideInput, is_plain, leaves, row_axis, snapshot

# attributes of any cache that a model may read before its layers without reading cached data
_HARMLESS: Final = {"offset", "make_mask", "__class__", "__getitem__", "start_position", "maybe_trim_front"}


def swap_class(thing: Any, **methods: Callable[..., Any]) -> None:
    """Replace methods of one object; its attributes, parameter paths and isinstance stay."""
    cls = type(thing)
    object.__setattr__(thing, "__class__", type(cls.__name__, (cls,), methods))


class Call:
    """One call of a layer: the arrays of its arguments, its cache, its return value.

    `named`: arrays among its direct arguments, by position or name. `touched`: caches whose content code outside the
    layers read before this call, since the first layer. `written` and `read`: keys of dicts shared by layers, a side
    channel that bypasses return values.
    """

    def __init__(self, layer: int, cache: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.layer = layer
        self.cache = cache
        everything: dict[int | str, Any] = dict(enumerate(args))
        everything.update(kwargs)
        self.named = {key: value for key, value in everything.items() if isinstance(value, mx.array)}
        self.given = leaves([*args, *kwargs.values()])
        self.touched: set[int] = set()
        self.written: set[Any] = set()
        self.read: set[Any] = set()
        self.value: Any = None
        self.made: list[mx.array] = []

    def returned(self, value: Any) -> None:
        self.value = snapshot(value)
        self.made = leaves(value)

    @property
    def is_plain(self) -> bool:
        """Whether the return value can be rebuilt elsewhere and begins with a hidden state."""
        return is_plain(self.value) and bool(self.made) and row_axis(self.made[0]) is not None


def side_inputs(calls: list[Call]) -> dict[int, SideInput] | None:
    """Per-token values that layers get besides the layer before, by first use; None if one is ambiguous."""
    made = ids(calls[0].made)
    uses: dict[int, list[tuple[int, int | str]]] = {}
    arrays: dict[int, mx.array] = {}
    for before, call in pairwise(calls):
        # if no layer gets the previous value unchanged, the extra value is the hidden state, scaled between the layers
        if ids(before.made) & ids(call.given):
            beside = {id(a): a for a in call.given if id(a) not in made and row_axis(a) is not None and is_float(a)}
            if not beside.keys() <= ids(call.named.values()) or any(row_axis(a) for a in beside.values()):
                return None
            arrays |= beside
            for key, array in call.named.items():
                if id(array) in beside:
                    uses.setdefault(id(array), []).append((call.layer, key))
        made |= ids(call.made)
    return {
        number: SideInput(tuple(uses[key]), tuple(array.shape[2:]), array.dtype)
        for number, (key, array) in enumerate(arrays.items())
    }


def is_float(array: mx.array) -> bool:
    return bool(mx.issubdtype(array.dtype, mx.floating))


def ids(arrays: Iterable[mx.array]) -> set[int]:
    return {id(array) for array in arrays}


class ForwardTracer:
    """Records layer calls, reads of parameters outside the layers, and reads of caches while it is on.

    `read`: paths of parameters read before the first layer, between layers, and after the last. `embedding`: caches
    written before the first layer.
    """

    def __init__(self, caches: list[Any]) -> None:
        self.calls: list[Call] = []
        self.read: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        self._caches = {id(cache): index for index, cache in enumerate(caches)}
        self._begun = 0
        self._inside = False
        self._layers = 0
        self._touched: set[int] = set()
        self.embedding: set[int] = set()
        for index, cache in enumerate(caches):
            self._trace_cache(index, cache)

    @contextmanager
    def on(self, outside: list[tuple[str, nn.Module]], layers: list[nn.Module]) -> Iterator[None]:
        """Trace parameter reads outside the layers, and layer calls, until the end of the context."""
        self._layers = len(layers)
        before = [(module, type(module)) for _, module in outside] + [(layer, type(layer)) for layer in layers]
        for path, module in outside:
            self._trace_reads(path, module)
        for index, layer in enumerate(layers):
            self._trace_calls(index, layer)
        try:
            yield
        finally:
            for module, cls in before:
                object.__setattr__(module, "__class__", cls)

    def _trace_reads(self, path: str, module: nn.Module) -> None:
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

    def _trace_calls(self, index: int, layer: nn.Module) -> None:
        cls = type(layer)

        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            self._begun += 1
            own = [self._caches[id(a)] for a in [*args, *kwargs.values()] if id(a) in self._caches]
            seen = Call(index, own[0] if own else None, args, kwargs)
            seen.touched, self._touched = self._touched, set()
            channels = {key: Channel(value, seen) for key, value in kwargs.items() if type(value) is dict}
            self._inside = True
            value = cls.__call__(this, *args, **(kwargs | channels))
            self._inside = False
            for key, channel in channels.items():
                kwargs[key].update(channel)
            seen.returned(value)
            self.calls.append(seen)
            return value

        swap_class(layer, __call__=call)

    def _trace_cache(self, index: int, cache: Any) -> None:
        cls: Any = type(cache)

        def set_item(this: Any, key: int, value: Any) -> None:
            if not self._begun:
                self.embedding.add(index)
            cls.__setitem__(this, key, value)

        def get_attribute(this: Any, key: str) -> Any:
            if self._begun and not self._inside and key not in _HARMLESS:
                self._touched.add(index)
            return cls.__getattribute__(this, key)

        writable = {"__setitem__": set_item} if hasattr(cls, "__setitem__") else {}
        swap_class(cache, __getattribute__=get_attribute, **writable)


class Channel(dict[Any, Any]):
    """A dict shared by layers, as one layer sees it: records the keys it reads and writes."""

    def __init__(self, content: dict[Any, Any], seen: Call) -> None:
        super().__init__(content)
        self._seen = seen

    def __getitem__(self, key: Any) -> Any:
        self._note_read(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self._note_read(key)
        return super().get(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._seen.written.add(key)
        super().__setitem__(key, value)

    def _note_read(self, key: Any) -> None:
        if key not in self._seen.written:
            self._seen.read.add(key)
