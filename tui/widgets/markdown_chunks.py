"""Cuts an answer into chunks, so that only the last one is redrawn for each token, and splits what stays too long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final, NamedTuple

from core.text import Clean

# characters that are redrawn in a few milliseconds, including colours of code
LIMIT: Final = 900
# characters that are drawn in a few milliseconds; a paragraph is simpler than a table
TABLE: Final = 1200
PARAGRAPH: Final = 3600

_ITEM: Final = re.compile(r"(?:([-*+])|(\d{1,9})([.)])) +\S")
# the start of a line that may become an item or a rule
_UNDECIDED: Final = re.compile(r"[-*+\d.) ]{0,20}")
_TABLE_RULE: Final = re.compile(r"\|(?: *:?-+:? *\|)+ *\n?")
_SENTENCE: Final = re.compile(r"[.!?] (?=\S)")
_MARKUP: Final = re.compile(r"[`*_]")
# the start of anything but a paragraph, and marks that may join two sentences
_NO_PARAGRAPH: Final = re.compile(r" {4}|\s{0,3}(?:[#>|`~]|[-*+] |\d{1,9}[.)] )|.*\n", re.DOTALL)
_PAIRED: Final = ("`", "*", "_", "~~")
_RULE: Final = re.compile(r"(?:([-*]) *)(?:\1 *){2,}")


class Chunk(NamedTuple):
    """Markdown that is drawn by itself."""

    text: Clean
    top: bool = True  # False: code, a list, a table or a paragraph continues from the last chunk
    bottom: bool = True  # False: code continues in the next chunk
    gap: bool = True  # a blank line follows


NOTHING = Chunk(Clean(""))


class _Cut(NamedTuple):
    """A possible end of a chunk. Higher `rank` is better: code cut within a function or string loses colours."""

    at: int
    rank: int
    fence: str = ""
    gap: bool = True


class _Item(NamedTuple):
    """The start of a list item: its mark, and its number or 0."""

    mark: str
    number: int


def grown(chunk: Chunk, more: str, limit: int = LIMIT) -> list[Chunk]:
    """`chunk` with more text, cut where it exceeds `limit` characters; the last one keeps growing."""
    done, rest = [], chunk._replace(text=Clean(chunk.text + more))
    while len(rest.text) > limit and (place := _place(rest.text, limit)):
        text, below, inside = rest.text[: place.at], rest.text[place.at :], bool(place.fence)
        done.append(rest._replace(text=Clean(text), bottom=not inside, gap=place.gap))
        rest = Chunk(Clean(place.fence + below), top=not inside)
    while parts := parted(rest.text):
        done.append(rest._replace(text=Clean(parts[0]), gap=False))
        rest = Chunk(Clean(parts[1]), top=not parts[1].startswith("|"))
    return [*done, rest]


def open_fence(text: str) -> str:
    """The line that opened the code fence in which `text` ends; "" for none."""
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
                is_inline = stripped[0] == "`" and "`" in stripped[run:]
                fence, mark = ("", "") if is_inline else (line, stripped[0] * run)
            elif stripped[0] == mark[0] and run >= len(mark) and not stripped.strip().strip(mark[0]):
                fence = ""
        yield _Line(at, line, fence, before)
        at += len(line)


def _place(text: str, limit: int) -> _Cut | None:
    best: _Cut | None = None
    for place in _places(text):
        if best is None or (place.at <= limit and place.rank >= best.rank):
            best = place
        if place.at > limit:
            break
    return best


def _places(text: str) -> Iterator[_Cut]:
    """All possible cuts except the beginning. A cut is followed by a line at the margin: an indented line belongs to
    the one above, and code inside a list to its item.
    """
    is_blank = has_code = False
    due: _Item | None = None  # the next item of the list at the margin
    for line in _lines(text):
        is_margin = not line.before and bool(line.text[:1].strip()) and not _UNDECIDED.fullmatch(line.text)
        item = _item(line.text) if is_margin and not line.fence else None
        if item and item == due:
            yield _Cut(line.at, 2, gap=False)
        elif line.at and is_margin and (is_blank or line.fence):
            yield _Cut(line.at, 2)
        elif has_code and line.before and line.before[0] != " " and line.fence:
            yield _Cut(line.at, is_blank * (2 if line.text[:1].strip() else 1), line.before, gap=False)
        if is_margin:
            due = _due(item, due)
        has_code = bool(line.before)  # below the first line of code there is a chunk to finish
        is_blank = not line.text.strip()


def _item(line: str) -> _Item | None:
    found = _ITEM.match(line)
    if not found or _RULE.fullmatch(line.strip()):
        return None
    bullet, number, end = found.groups()
    return _Item(bullet or end, int(number or 0))


def _due(item: _Item | None, due: _Item | None) -> _Item | None:
    """The item expected next. Items are numbered by their place in the list, whatever their own number."""
    if item is None or item.mark in "-*+":
        return item
    number = due.number if due and due.mark == item.mark else item.number
    return _Item(item.mark, number + 1)


def parted(text: str) -> tuple[str, str] | None:
    """The start of a long block, and the rest to draw below it; None for all else. A table's rest has a hidden head."""
    if text.startswith("|"):
        return _parted_table(text) if len(text) > TABLE else None
    return _parted_paragraph(text) if len(text) > PARAGRAPH and not _NO_PARAGRAPH.match(text) else None


def _parted_table(text: str) -> tuple[str, str] | None:
    lines = text.splitlines(keepends=True)
    *above, growing = lines
    if len(above) < 4 or not _TABLE_RULE.fullmatch(lines[1]) or not all(line.startswith("|") for line in above):
        return None
    columns = zip_longest(*(_cells(line) for line in (above[0], *above[2:])), fillvalue="")
    head = "|".join("x" * max(1, *map(len, column)) for column in columns)
    return "".join(above), f"|{head}|\n{lines[1]}{growing}"


def _cells(line: str) -> list[str]:
    return [_MARKUP.sub("", cell.strip()) for cell in line.strip().strip("|").split("|")]


def _parted_paragraph(text: str) -> tuple[str, str] | None:
    ends = (found.end() for found in _SENTENCE.finditer(text, PARAGRAPH // 2))
    at = next((end for end in ends if all(text.count(mark, 0, end) % 2 == 0 for mark in _PAIRED)), None)
    return None if at is None else (text[:at], text[at:])
