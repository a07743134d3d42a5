"""Byte ranges of a model's files that hold some of its tensors, from the headers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import pairwise

from core.events import Value
from core.models.files.safetensors import SafetensorsHeader


class Part(Value, frozen=True, kw_only=True):
    """The bytes [begin, end) of one file of a model directory, counted from the file's first byte."""

    file: str
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        """Its length."""
        return self.end - self.begin


def by_file(parts: Iterable[Part]) -> dict[str, tuple[tuple[int, int], ...]]:
    """The begins and ends of `parts` by the names of their files, in their order."""
    pieces: dict[str, list[tuple[int, int]]] = {}
    for part in parts:
        pieces.setdefault(part.file, []).append((part.begin, part.end))
    return {file: tuple(each) for file, each in pieces.items()}


def parts_in(pieces: Mapping[str, Iterable[tuple[int, int]]]) -> tuple[Part, ...]:
    """The parts that `by_file` was made of, file by file."""
    return tuple(Part(file=file, begin=begin, end=end) for file, each in pieces.items() for begin, end in each)


def parts_of(headers: Mapping[str, SafetensorsHeader], tensors: Set[str]) -> tuple[Part, ...]:
    """The header of every file, without which no part of the model can be built, and the bytes of `tensors`.

    `headers` by the names of the files. In the order of the files; no two parts of a file touch.
    """
    parts: list[Part] = []
    for file, header in headers.items():
        wanted = [
            (header.nbytes + t.begin, t.nbytes) for name, t in header.tensors.items() if name in tensors and t.nbytes
        ]
        begin, end = 0, header.nbytes
        for first, nbytes in sorted(wanted):
            if first > end:
                parts.append(Part(file=file, begin=begin, end=end))
                begin = first
            end = max(end, first + nbytes)
        parts.append(Part(file=file, begin=begin, end=end))
    return tuple(parts)


def in_fewer(parts: Iterable[Part], most: int) -> tuple[Part, ...]:
    """Join `parts` into at most `most`, or one a file if there are more files, across the smallest gaps. In order."""
    ordered = sorted(parts, key=lambda part: (part.file, part.begin))
    gaps = sorted(
        (second.begin - first.end, at)
        for at, (first, second) in enumerate(pairwise(ordered))
        if first.file == second.file
    )
    closed = {at for _, at in gaps[: max(0, len(ordered) - most)]}
    fewer: list[Part] = []
    for at, part in enumerate(ordered):
        if at - 1 in closed:
            last = fewer.pop()
            part = Part(file=last.file, begin=last.begin, end=max(last.end, part.end))
        fewer.append(part)
    return tuple(fewer)
