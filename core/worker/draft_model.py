"""The draft model: a whole small model on the head, with its own caches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import mlx.core as mx

from core.engine.prefix_cache import common_prefix
from core.errors import UnsupportedModel
from core.models.files.model_folder import read_folder
from core.models.metal import fault_of
from core.models.slicing.loading import load_slice
from core.models.slicing.slots import Slice

CHUNK: Final = 512


def load_draft(directory: Path, vocabulary: int) -> LoadedDraft:
    """A draft for a model of `vocabulary` token ids. Raises as `load_slice`, also if its caches can't be trimmed."""
    folder = read_folder(directory)
    layers = load_slice(folder, 0, folder.layout().layers, embed=True, output=True)
    if layers.caches.trim_limit is not None:
        what = f"{folder.name} can't trim its caches, so it can't draft for another model."
        raise UnsupportedModel(what, "Choose another draft, or load the model without --draft.")
    return LoadedDraft(layers, vocabulary)


class LoadedDraft:
    """Continues greedily, with what it has read cached; nothing after an MLX error. Raises GpuFault."""

    def __init__(self, layers: Slice, vocabulary: int) -> None:
        self._layers, self._vocabulary = layers, vocabulary
        self._caches: list[Any] = layers.caches.new()
        self._held: list[int] = []
        self._last = 0
        self._is_able = True

    def read(self, tokens: Sequence[int]) -> None:
        """Hold all of `tokens`; the last one is read when something is proposed."""
        *before, self._last = tokens
        common = common_prefix(self._held, before)
        self._trim(len(self._held) - common)
        unread = before[common:]
        self._is_able = self._is_able and max((*unread, self._last)) < self._layers.vocab_size
        while self._is_able and unread:
            self._feed(mx.array([unread[:CHUNK]]), 0)
            self._held += unread[:CHUNK]
            del unread[:CHUNK]

    def propose(self, count: int) -> tuple[int, ...]:
        """Up to `count` tokens that follow, fewer if the other model does not know one."""
        if not self._is_able:
            return ()
        chosen = self._feed(mx.array([[self._last]]), count)
        self._held += [self._last, *chosen[:-1]][: len(chosen)]
        known = next((at for at, token in enumerate(chosen) if token >= self._vocabulary), len(chosen))
        return tuple(chosen[:known])

    def _feed(self, tokens: mx.array, count: int) -> list[int]:
        chosen: list[mx.array] = []
        try:
            for _ in range(count):
                chosen.append(mx.argmax(self._layers.whole(tokens, self._caches, ahead=True), axis=-1))
                tokens = chosen[-1][None]
            if not count:
                self._layers.whole(tokens, self._caches, ahead=True)
            mx.eval(chosen, self._layers.caches.states(self._caches))
        except RuntimeError as error:
            if fault := fault_of(error):
                raise fault from error
            self._is_able = False
            return []
        values: Any = mx.concatenate(chosen).tolist() if chosen else []
        return [int(value) for value in values]

    def _trim(self, count: int) -> None:
        if count:
            self._caches = self._layers.caches.trim(self._caches, count)
            del self._held[-count:]
