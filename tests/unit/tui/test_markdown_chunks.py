"""An answer is drawn in pieces: however it is cut, together they look like the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.text import Clean
from tui.widgets.markdown import render
from tui.widgets.markdown_chunks import LIMIT, NOTHING, PARAGRAPH, TABLE, Chunk, grown

CODE = "```python\ndef one():\n    x = 1\n\n    return x\n\ndef two():\n    return 2\n```\n\n"
WIDTH = 40


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("one\n\ntwo\n\nthree", ["one\n\n", "two\n\n", "three"], id="blank lines"),
        pytest.param("no blank line\nat all", ["no blank line\nat all"], id="one paragraph"),
        pytest.param("one\n```\na\n```\n", ["one\n", "```\na\n```\n"], id="before code"),
        pytest.param("- a\n\n  still a\n\n- b", ["- a\n\n  still a\n\n", "- b"], id="an item stays whole"),
        pytest.param("- a\n\n  ```\n  x\n  y\n  ```\n", ["- a\n\n  ```\n  x\n  y\n  ```\n"], id="code of an item"),
        pytest.param(
            "````\n```\n\nb\n````\n\nz", ["````\n```\n", "````\n\n", "````\nb\n````\n\n", "z"], id="a fence in code"
        ),
        pytest.param("```\na\nb\n", ["```\na\n", "```\nb\n"], id="lines of code"),
        pytest.param("- a\n- b\n  b\n* c\n", ["- a\n", "- b\n  b\n* c\n"], id="items of one list"),
        pytest.param("2. a\n3. b\n3. c\n", ["2. a\n", "3. b\n3. c\n"], id="items by number"),
        pytest.param("- a\n- - -\n- b\n", ["- a\n- - -\n- b\n"], id="a rule"),
        pytest.param("one\n\n", ["one\n\n"], id="nothing below"),
    ],
)
def test_where_a_text_is_cut(text: str, parts: list[str]) -> None:
    assert [piece.text for piece in grown(NOTHING, text, 1)] == parts


def test_code_is_cut_where_it_keeps_its_colours() -> None:
    first, second, *_ = grown(NOTHING, CODE, 70)
    assert first == Chunk(Clean("```python\ndef one():\n    x = 1\n\n    return x\n\n"), bottom=False, gap=False)
    assert second == Chunk(Clean("```python\ndef two():\n    return 2\n```\n\n"), top=False)


def test_what_is_short_stays_whole_and_what_cannot_be_cut_too() -> None:
    assert grown(NOTHING, "a\n\nb") == [Chunk(Clean("a\n\nb"))]
    assert [len(piece.text) for piece in grown(NOTHING, "x" * 20_000)] == [20_000]
    long = grown(NOTHING, CODE * 100)
    assert all(len(piece.text) <= LIMIT for piece in long)
    assert len(long) < 100 * len(CODE) / LIMIT * 1.3


blocks = st.sampled_from(
    [
        "a paragraph of some words\nin two lines\n\n",
        "## A title\n\n",
        "- one\n- two\n  - three\n\nand more\n\n",
        "1. first\n2. second\n   and more\n1. third\n4. fourth\n\nbelow\n\n",
        "* one\n\n* two\n\n  and more of it\n* three\n\nbelow\n\n",
        "3) three\n\n4) four\n\n---\n\n",
        "words\n- one\n- two\n+ another\n+ list\n# title\n- a third\n\nbelow\n\n",
        "> said by somebody\n\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
        "words above code\n```\nx\n```\n\n",
        "~~~\n```\n\n~~~\n\n",
        CODE,
        "```c\n\n\nint x;\n\n\n```\n\n",
    ]
)


@pytest.mark.slow
@given(st.lists(blocks, max_size=8).map("".join), st.integers(1, 120), st.data())
def test_the_pieces_of_a_text_look_like_the_whole_however_it_came(text: str, limit: int, data: st.DataObject) -> None:
    done, last, at = [], NOTHING, 0
    while at < len(text):
        stop = data.draw(st.integers(at + 1, min(len(text), at + 60)))
        *more, last = grown(last, text[at:stop], limit)
        done += more
        at = stop
    shown = ""
    for piece in [*done, last]:
        if piece.text.strip():
            shown += render(piece, WIDTH).plain + ("\n\n" if piece.gap else "\n")
    assert shown.strip() == render(Chunk(Clean(text)), WIDTH).plain.strip()


@pytest.mark.parametrize("text", ["```a`\n# x\n# y\n# z\n", "<details>\n```\none\ntwo\nthree\n", "~~~\n\n\n\n~~~\n"])
def test_what_only_looks_like_code_loses_no_line(text: str) -> None:
    shown = [render(piece, WIDTH).plain for piece in grown(NOTHING, text, 1)]
    for word in text.replace("#", "").split():
        assert word in "\n".join(shown) or set(word) <= set("`~")


def test_a_line_of_code_that_is_being_written_is_drawn_once_however_often() -> None:
    drawn = {render(Chunk(Clean("```\none\ntwo")), WIDTH).plain for _ in range(3)}
    assert [text.count("two") for text in drawn] == [1]


@given(st.text(alphabet="a`~ \n-#", max_size=80), st.integers(1, 40))
def test_nothing_is_lost_and_everything_can_be_drawn(text: str, limit: int) -> None:
    pieces = grown(NOTHING, text, limit)
    for before, piece in zip([Chunk(Clean("")), *pieces], pieces, strict=False):
        assert piece.top == before.bottom
    fences = [piece.text.splitlines(keepends=True)[0] if not piece.top else "" for piece in pieces]
    assert "".join(piece.text.removeprefix(fence) for piece, fence in zip(pieces, fences, strict=True)) == text
    drawn = "".join(render(piece, WIDTH).plain for piece in pieces)
    assert drawn.count("a") == render(Chunk(Clean(text)), WIDTH).plain.count("a")


def test_a_long_table_goes_on_in_columns_of_the_same_width() -> None:
    head = "| key | does |\n|---|---|\n"
    rows = [f"| `k{n:03}` | what it does, {'at length' * (n % 3)} |\n" for n in range(200)]
    pieces = [NOTHING]
    for part in (head, *rows):
        pieces[-1:] = grown(pieces[-1], part)
    assert len(pieces) > 5
    assert all(len(piece.text) < 2 * TABLE for piece in pieces)
    lines = "\n".join(render(piece, WIDTH).plain for piece in pieces).splitlines()
    assert len(lines) == 2 + len(rows)
    assert {line.index("what") for line in lines[2:]} == {lines[0].index("does")}


def test_a_long_paragraph_is_cut_behind_a_sentence_and_outside_of_what_belongs_together() -> None:
    text = "It has **many words. And more** of them. " * 300
    pieces = grown(NOTHING, text)
    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.text.startswith("It has") and len(piece.text) <= PARAGRAPH for piece in pieces)
    assert not any("*" in render(piece, WIDTH).plain for piece in pieces)
