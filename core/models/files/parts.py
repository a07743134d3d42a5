"""Byte ranges of a model's files that hold given tensors, from the headers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import groupby, pairwise

from core.events import Value
from core.models.files.safetensors import SafetensorsHeader

Ranges = tuple[tuple[int, int], ...]


class Part(Value, frozen=True, kw_only=True):
    """Bytes [begin, end) of one file of a model folder."""

    file: str
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


def by_file(parts: Iterable[Part]) -> dict[str, Ranges]:
    """(begin, end) pairs of `parts` by file name, in order."""
    pieces: dict[str, list[tuple[int, int]]] = {}
    for part in parts:
        pieces.setdefault(part.file, []).append((part.begin, part.end))
    return {file: tuple(each) for file, each in pieces.items()}


def parts_in(pieces: Mapping[str, Iterable[tuple[int, int]]]) -> tuple[Part, ...]:
    """Inverse of `by_file`."""
    return tuple(Part(file=file, begin=begin, end=end) for file, each in pieces.items() for begin, end in each)


def parts_of(headers: Mapping[str, SafetensorsHeader], tensors: Set[str]) -> tuple[Part, ...]:
    """Every file's header, which any slice needs, and the bytes of `tensors`, in file order; no two parts touch."""
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


def ranges(numbers: Iterable[int]) -> Ranges:
    """Group ascending numbers into half-open ranges."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return tuple((run[0], run[-1] + 1) for run in runs)


def range_texts(which: Ranges) -> list[str]:
    """ "1–3", "8": half-open ranges for people."""
    return [f"{start}–{stop - 1}" if stop > start + 1 else f"{start}" for start, stop in which]


def in_fewer(parts: Iterable[Part], most: int) -> tuple[Part, ...]:
    """Join `parts` across the smallest gaps into at most `most`, or one per file if there are more files."""
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
