"""Where an answer can be cut, so that what is finished is drawn once and only its end anew for each word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from core.text import Clean

# of characters: what is drawn anew in a few milliseconds, code with its colours too
LIMIT = 900


class Piece(NamedTuple):
    """Markdown that is drawn by itself. Long code goes on in the next piece: then one lacks the `bottom` of its frame,
    and the other, which begins with the same fence, the `top`.
    """

    text: Clean
    top: bool = True
    bottom: bool = True


NOTHING = Piece(Clean(""))


class _Cut(NamedTuple):
    """A place where a block ends, or a line of the code that `fence` opened. The better `rank`, the better the place:
    what is cut within a function or a string loses the colours that depend on the lines above.
    """

    at: int
    rank: int
    fence: str = ""


def grown(piece: Piece, more: str, limit: int = LIMIT) -> list[Piece]:
    """`piece` with more text, cut wherever that is longer than `limit` characters and can be; the last one grows on."""
    done, rest = [], piece._replace(text=Clean(piece.text + more))
    while len(rest.text) > limit and (place := _place(rest.text, limit)):
        text, below, inside = rest.text[: place.at], rest.text[place.at :], bool(place.fence)
        done.append(rest._replace(text=Clean(text), bottom=not inside))
        rest = Piece(Clean(place.fence + below), top=not inside)
    return [*done, rest]


def open_fence(text: str) -> str:
    """The line that opened the code fence in which `text` ends, "" if it ends in none."""
    opened = ""
    for line in _lines(text):
        opened = line.fence
    return opened


class _Line(NamedTuple):
    at: int
    text: str
    fence: str  # the line that opened the fence in which this one ends
    before: str  # and in which it begins


def _lines(text: str) -> Iterator[_Line]:
    at, fence, mark = 0, "", ""
    for line in text.splitlines(keepends=True):
        before, stripped = fence, line.lstrip(" ")
        if stripped[:3] in ("```", "~~~") and len(line) - len(stripped) < 4:
            run = len(stripped) - len(stripped.lstrip(stripped[0]))
            if not fence:
                fence, mark = line, stripped[0] * run
            elif stripped[0] == mark[0] and run >= len(mark) and not stripped.strip().strip(mark[0]):
                fence = ""
        yield _Line(at, line, fence, before)
        at += len(line)


def _place(text: str, limit: int) -> _Cut | None:
    """The last of the best within `limit`, else the first one behind it."""
    best: _Cut | None = None
    for place in _places(text):
        if best is None or (place.at <= limit and place.rank >= best.rank):
            best = place
        if place.at > limit:
            break
    return best


def _places(text: str) -> Iterator[_Cut]:
    """All places but the beginning. What follows a place begins at the margin: an indented line belongs to the one
    above, and code within a list to its item.
    """
    is_blank = has_code = False
    for line in _lines(text):
        if line.at and not line.before and line.text[:1].strip() and (is_blank or line.fence):
            yield _Cut(line.at, 2)
        elif has_code and line.before and line.before[0] != " " and line.fence:
            yield _Cut(line.at, is_blank * (2 if line.text[:1].strip() else 1), line.before)
        has_code = bool(line.before)  # below the first line of code there is a piece to finish
        is_blank = not line.text.strip()
