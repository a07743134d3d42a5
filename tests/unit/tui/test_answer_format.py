"""Schemas as people type them, key by key: every unusable one gets a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.constraint import MAX_SOURCE, Constraint
from core.errors import UsageError
from tui.state.answer_format import shape_of, shape_text


def test_what_is_typed_becomes_a_shape(tmp_path: Path) -> None:
    schema, grammar = tmp_path / "a b.json", tmp_path / "g.lark"
    schema.write_text('{"type":\n "null"}')
    grammar.write_text('start: "x"')
    typed = {
        f"schema {schema}": ("json_schema", '{"type":\n "null"}'),
        ' schema  {"type": "null"} ': ("json_schema", '{"type": "null"}'),
        "regex a {2}": ("regex", "a {2}"),
        f"grammar {grammar}": ("lark", 'start: "x"'),
    }
    for text, (kind, source) in typed.items():
        assert shape_of(text) == Constraint(kind=kind, source=source)  # type: ignore[arg-type]  # one of three
    assert shape_text(shape_of(f"schema {schema}")) == 'schema {"type":  "null"}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Start with schema, regex or grammar"),
        ("schema", "Start with schema, regex or grammar"),
        ("json {}", "Start with schema, regex or grammar"),
        ("schema nowhere.json", "The file nowhere.json doesn't exist."),
        ("schema ~nobody-of-that-name/x", "The file"),
        ("schema a\0b", "The file"),
        ("grammar " + "x/" * 5000, "The file x/x/"),
        ("schema {" + "[" * 100_000, "The file {"),
        ("schema \x1b[31mred", "The file"),
    ],
)
def test_what_cannot_be_one_is_told_whatever_stands_there(text: str, said: str) -> None:
    with pytest.raises(UsageError) as told:
        shape_of(text)
    assert said in str(told.value)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 1200


def test_a_file_that_holds_none_is_told(tmp_path: Path) -> None:
    for content, said in (
        (b"[1]", "contain a JSON object"),
        (b"\xff", "not text"),
        (b" " * (MAX_SOURCE + 1), "longer"),
    ):
        file = tmp_path / "file"
        file.write_bytes(content)
        with pytest.raises(UsageError, match=said):
            shape_of(f"schema {file}")
