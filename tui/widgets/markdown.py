"""Markdown of an answer as one `Content`: a widget per block makes chats slow."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content, Span

from core.text import Clean
from tui.state.format import fit
from tui.widgets.markdown_chunks import Chunk

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

# Textual dims its code colours and gives some a background, which makes them hard to read
_THINNED = re.compile(r" \d+%| on \S+")

COPY_HINT = "Y copy code"

_BULLETS = "•▪‣"
_INLINE = {"strong": "bold", "em": "italic", "s": "strike", "link": "underline"}


def code_blocks(text: Clean) -> list[str]:
    return [t.content.rstrip("\n") for t in _parser().parse(text) if t.type in ("fence", "code_block")]


def render(chunk: Chunk, width: int) -> Content:
    """A chunk as selectable text. Links and pictures are only shown, never opened.

    Paragraphs wrap by themselves; lists, quotes and code are wrapped to `width` cells, to keep their margin.
    """
    blocks = _Blocks(width)
    for token in _parser().parse(chunk.text):
        blocks.take(token)
    if not blocks.done:
        return Content("")
    if not chunk.top and (first := blocks.done[0]).plain.startswith("┌"):
        _, blocks.done[0] = first.divide([first.plain.index("\n") + 1])
    if not chunk.top and chunk.text.startswith("|"):
        blocks.done[0] = Content("\n").join(blocks.done[0].split("\n", allow_blank=True)[2:])  # its head
    if not chunk.bottom and (at := (last := blocks.done[-1]).plain.rfind("\n└")) >= 0:
        blocks.done[-1], _ = last.divide([at])
    return Content("\n\n").join(blocks.done)


@cache
def _parser() -> MarkdownIt:
    # imported late: not needed before the first answer
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.core.ruler.push("keep_breaks", _keep_breaks)
    return parser


def _keep_breaks(state: StateCore) -> None:
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


class _Blocks:
    """Turns tokens into blocks; lists and quotes only change the prefix of their content."""

    def __init__(self, width: int) -> None:
        self.done: list[Content] = []
        self._width = width
        self._lists: list[int | None] = []
        self._quotes = 0
        self._marker = ""
        self._heading = ""
        self._rows: list[list[Content]] | None = None
        self._tight = False

    def take(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                self._lists.append(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                self._tight = bool(self._lists)
            case "list_item_open":
                self._marker = self._next_marker()
            case "blockquote_open" | "blockquote_close":
                self._quotes += token.nesting
            case "heading_open" | "heading_close":
                self._heading = token.tag if token.nesting > 0 else ""
            case "hr":
                self._add(Content.styled("─" * 24, "$text-muted"))
            case "fence" | "code_block":
                self._add(_code(token.content, token.info, self._width - 2 * (len(self._lists) + self._quotes)))
            case "html_block":
                self._add(Content(token.content.rstrip("\n")))
            case "table_open":
                self._rows = []
            case "table_close":
                self._add(_table(self._rows or []))
                self._rows = None
            case "tr_open" if self._rows is not None:
                self._rows.append([])
            case "inline":
                self._inline(_inline(token))

    def _inline(self, content: Content) -> None:
        if self._rows:
            self._rows[-1].append(content)
        elif self._heading:
            self._add(content.stylize("bold $text-primary" if self._heading in ("h1", "h2") else "bold"))
        else:
            self._add(content, close=bool(self._lists) and self._tight)
            self._tight = bool(self._lists)

    def _next_marker(self) -> str:
        number = self._lists[-1]
        if number is None:
            return _BULLETS[(len(self._lists) - 1) % len(_BULLETS)] + " "
        self._lists[-1] = number + 1
        return f"{number}. "

    def _add(self, content: Content, *, close: bool = False) -> None:
        """Append a block; `close` puts it right below the last one, without an empty line."""
        indent = "  " * max(0, len(self._lists) - 1)
        first = indent + self._marker if self._lists else ""
        rest = " " * len(first)
        self._marker = " " * len(self._marker)
        quote = Content.styled("▌ " * self._quotes, "$text-muted")
        room = self._width - quote.cell_length - max(len(first), len(rest))
        lines = content.split("\n", allow_blank=True)
        if (first or self._quotes) and room > 8:
            lines = [part for line in lines for part in (line.wrap(room) if line.cell_length > room else [line])]
        block = Content("\n").join(
            Content.assemble(quote, (first if i == 0 else rest, "$text-muted"), line) for i, line in enumerate(lines)
        )
        if close and self.done:
            block = Content("\n").join([self.done.pop(), block])
        self.done.append(block)


def _inline(token: Token) -> Content:
    parts: list[str] = []
    spans: list[Span] = []
    opened: list[tuple[str, int]] = []
    at = 0
    for child in token.children or ():
        name, _, end = child.type.rpartition("_")
        if end == "open" and name in _INLINE:
            opened.append((name, at))
            continue
        if end == "close" and name in _INLINE:
            _, start = opened.pop()
            spans.append(Span(start, at, _INLINE[name]))
            continue
        text = "\n" if child.type in ("softbreak", "hardbreak") else child.content
        if child.type == "code_inline":
            spans.append(Span(at, at + len(text), "$text-warning on $panel"))
        parts.append(text)
        at += len(text)
    return Content("".join(parts), spans)


def _table(rows: list[list[Content]]) -> Content:
    widths = [max(cell.cell_length for cell in column) for column in zip(*rows, strict=False)]
    lines = [
        Content("  ").join(
            (cell if i else cell.stylize("bold")).pad_right(width - cell.cell_length)
            for cell, width in zip(row, widths, strict=False)
        )
        for i, row in enumerate(rows)
    ]
    lines.insert(1, Content.styled("  ".join("─" * width for width in widths), "$text-muted"))
    return Content("\n").join(lines)


def _code(code: str, info: str, width: int) -> Content:
    """A framed code block with its language and copy key. The growing line gets its colours when it ends."""
    # guessing a language loads every lexer, which takes a second
    language = info.split()[0] if info.strip() else "text"
    written = code.rfind("\n") + 1
    body = list[Content]()
    if written:  # Textual's list must not be changed
        body += _coloured(code[:written].expandtabs(4), language).split("\n", allow_blank=True)
    body += [Content("")] * (code.count("\n") - len(body))  # blank lines at the end
    if being_written := code[written:].expandtabs(4):
        body.append(Content(being_written))
    room = max(8, width - 4)
    lines = [part for line in body for part in (line.fold(room) or [line])]
    top, bottom = _frame_top(language, room + 4), f"└{'─' * (room + 2)}┘"
    text, spans, at = [top], [Span(0, len(top) + 3, "$text-muted")], len(top) + 3
    for line in lines:
        padded = line.plain + " " * (room - line.cell_length)
        text.append(f"│ {padded} │")
        spans += [Span(start + at, end + at, style) for start, end, style in line.spans]
        at += len(padded)
        spans.append(Span(at, at + 5, "$text-muted"))
        at += 5
    text.append(bottom)
    spans[-1] = spans[-1]._replace(end=at + len(bottom))
    return Content("\n".join(text), spans)


@lru_cache(maxsize=8)
def _coloured(code: str, language: str) -> Content:
    """Cached: a growing answer needs the same lines thirty times a second, and highlighting is slow."""
    from textual.highlight import highlight

    coloured = highlight(code, language=language)
    spans = [Span(start, end, _THINNED.sub("", str(style))) for start, end, style in coloured.spans]
    return Content(coloured.plain, spans)


def _frame_top(language: str, width: int) -> str:
    hint = f" {COPY_HINT} ┐"
    if cell_len(language) + len(hint) + 6 > width:
        hint = "┐"
    name = fit(language, min(cell_len(language), width - len(hint) - 3))
    head = f"┌ {name} "
    return head + "─" * (width - cell_len(head) - len(hint)) + hint
