"""Reads only a rank's part of a tensor, if the file has the tensor in the form that the model takes.

MLX reads a tensor whole and then cuts out the part. That stays so if a family's `sanitize` transforms the tensors, and
for pieces so short that the disk would read the gaps anyway.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import mlx.core as mx
from mlx.nn.layers import distributed
from mlx.utils import tree_flatten

from core.models.files.model_folder import ModelFolder
from core.models.files.parts import ranges

MAX_READ_BYTES: Final = 1 << 30  # macOS refuses a read of 2 GiB


class Cut(NamedTuple):
    """A rank's part `part` of `tensor`: the indices `kept` along `axis`."""

    part: mx.array
    tensor: mx.array
    axis: int
    kept: tuple[range, ...]


class PartRead(NamedTuple):
    """A part of a tensor of `shape`, read from `file` at `begin`."""

    file: Path
    begin: int
    shape: tuple[int, ...]
    dtype: mx.Dtype
    axis: int
    kept: tuple[range, ...]

    @property
    def piece_bytes(self) -> int:
        """Length of the shortest contiguous piece."""
        return min(map(len, self.kept)) * self._entry_bytes

    @property
    def _entry_bytes(self) -> int:
        return prod(self.shape[self.axis + 1 :]) * self.dtype.size

    def read(self) -> mx.array:
        """Read the part into memory. Raises OSError, also if the file is too short."""
        outer, entry = prod(self.shape[: self.axis]), self._entry_bytes
        length = sum(map(len, self.kept))
        data = memoryview(bytearray(outer * length * entry))
        at = 0
        with self.file.open("rb", buffering=0) as file:
            for row in range(outer):
                for kept in self.kept:
                    end = at + len(kept) * entry
                    _fill(file.fileno(), data[at:end], self.begin + (row * self.shape[self.axis] + kept.start) * entry)
                    at = end
        shape = (*self.shape[: self.axis], length, *self.shape[self.axis + 1 :])
        array: mx.array = mx.array(data).view(self.dtype).reshape(shape)  # type: ignore[arg-type]
        mx.eval(array)
        return array


@contextmanager
def noting_cuts() -> Iterator[dict[int, Cut]]:
    """Record the cuts that mlx makes during the context, by identity of the resulting part."""
    cuts: dict[int, Cut] = {}
    shard: Any = distributed._shard

    def noting(parameters: Any, predicate: Any, group: Any = None) -> Any:
        made = shard(parameters, predicate, group)
        for (path, tensor), (_, part) in zip(tree_flatten(parameters), tree_flatten(made), strict=True):
            if part is not tensor:
                place = predicate(path, tensor)
                axis, segments = (place, 1) if isinstance(place, int) else place
                # the same cut of a range shows the kept indices
                line = shard({"": mx.arange(tensor.shape[axis])}, lambda *_: (0, segments), group)[""]  # noqa: B023
                cuts[id(part)] = Cut(part, tensor, axis % tensor.ndim, tuple(starmap(range, ranges(line.tolist()))))
        return made

    distributed._shard = noting
    try:
        yield cuts
    finally:
        distributed._shard = shard


def part_reads(folder: ModelFolder, tensors: Mapping[str, mx.array], cuts: Mapping[str, Cut]) -> dict[str, PartRead]:
    """Reads of those parts in `cuts`, by path, that are faster to read alone. `tensors`: by name in the files."""
    names = {id(tensor): name for name, tensor in tensors.items()}
    places = {
        name: (folder.path / file, header.nbytes + tensor.begin)
        for file, header in folder.headers.items()
        for name, tensor in header.tensors.items()
    }
    reads = {
        path: PartRead(*places[names[id(cut.tensor)]], cut.tensor.shape, cut.tensor.dtype, cut.axis, cut.kept)
        for path, cut in cuts.items()
        if id(cut.tensor) in names
    }
    return {path: read for path, read in reads.items() if read.piece_bytes >= mmap.PAGESIZE}


def _fill(fd: int, room: memoryview, offset: int) -> None:
    while room:
        count = os.preadv(fd, [room[:MAX_READ_BYTES]], offset)
        if not count:
            raise OSError("the file is too short")
        room, offset = room[count:], offset + count
