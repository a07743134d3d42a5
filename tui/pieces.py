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


class _Cut(NamedTuple):
    """A place where a block ends, or a line of the code that `fence` opened. The better `rank`, the better the place:
    what is cut within a function or a string loses the colours that depend on the lines above.
    """

    at: int
    rank: int
    fence: str = ""


def cut(piece: Piece) -> tuple[Piece, Piece] | None:
    """The part of `piece` that can be finished and what follows it; None while it is short or nothing can be."""
    if len(piece.text) <= LIMIT:
        return None
    best: _Cut | None = None
    for place in _places(piece.text):
        if best is None or (place.at <= LIMIT and place.rank >= best.rank):
            best = place
        if place.at > LIMIT:
            break
    if best is None:
        return None
    done, rest = piece.text[: best.at], piece.text[best.at :]
    inside = bool(best.fence)
    return piece._replace(text=Clean(done), bottom=not inside), Piece(Clean(best.fence + rest), top=not inside)


def pieces(text: Clean) -> list[Piece]:
    """`text` cut wherever it can be."""
    done, rest = [], Piece(text)
    while two := cut(rest):
        done.append(two[0])
        rest = two[1]
    return [*done, rest] if rest.text.strip() else done


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
