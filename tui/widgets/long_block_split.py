"""Splits paragraphs and tables that are too long to be redrawn for each token. Pure."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Final

# characters that are drawn in a few milliseconds; a paragraph is simpler than a table
TABLE: Final = 1200
PARAGRAPH: Final = 3600

_RULE: Final = re.compile(r"\|(?: *:?-+:? *\|)+ *\n?")
_SENTENCE: Final = re.compile(r"[.!?] (?=\S)")
_MARKUP: Final = re.compile(r"[`*_]")
# the start of anything but a paragraph, and marks that may join two sentences
_NO_PARAGRAPH: Final = re.compile(r" {4}|\s{0,3}(?:[#>|`~]|[-*+] |\d{1,9}[.)] )|.*\n", re.DOTALL)
_PAIRED: Final = ("`", "*", "_", "~~")


def parted(text: str) -> tuple[str, str] | None:
    """The start of a long block, and the rest to draw below it; None for all else. A table's rest has a hidden head."""
    if text.startswith("|"):
        return _parted_table(text) if len(text) > TABLE else None
    return _parted_paragraph(text) if len(text) > PARAGRAPH and not _NO_PARAGRAPH.match(text) else None


def _parted_table(text: str) -> tuple[str, str] | None:
    lines = text.splitlines(keepends=True)
    *above, growing = lines
    if len(above) < 4 or not _RULE.fullmatch(lines[1]) or not all(line.startswith("|") for line in above):
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
