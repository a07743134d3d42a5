"""A hostile schema is refused, whatever it needs; accepted ones have proved that they can be used."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from core.constraint import Grammar
from core.errors import UsageError
from core.models.files.ready_child import ReadyChild
from core.models.files.sandbox import rss_of
from core.models.text.grammar_check import OWN_BYTES, check

MANY = [{"type": "object", "properties": {f"p{n}{i}": {"type": "integer"} for i in range(10)}} for n in range(60)]
HOSTILE = {
    "too wide to use": ("json_schema", {"anyOf": MANY}),
    "too large": ("json_schema", {"allOf": [{"anyOf": MANY[:10]}] * 9}),
    "endless": ("json_schema", {"$ref": "#"}),
    "deep": ("lark", f"start: {'(' * 9000}'a'{')' * 9000}"),
    "states": ("lark", "start: X\nX: /(a|b)*a(a|b){14}c/ & /(b|a)*b(a|b){13}.*c/ & ~/.*aab.*/"),
    "repeated": ("lark", 'start: ("a"{1,60000}){1,60000}'),
    "ambiguous": ("lark", "\n".join(["start: s0", *(f's{n}: s{n} s0 | s{(n + 1) % 300} | "a"' for n in range(300))])),
}


@pytest.fixture(scope="module")
def child() -> ReadyChild:
    return ReadyChild()


def grammar(kind: str, source: object) -> Grammar:
    return Grammar(kind=kind, source=source if isinstance(source, str) else json.dumps(source))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.promise("T9")
def test_hostile_ones_are_refused(child: ReadyChild, name: str) -> None:
    with pytest.raises(UsageError, match=r"shape|schema|grammar"):
        check({"": grammar(*HOSTILE[name])}, child.run)


def test_every_grammar_has_as_much_memory_whatever_was_asked_before() -> None:
    child = ReadyChild()
    for name in ("too wide to use", "states", "ambiguous"):
        with pytest.raises(UsageError):
            check({"": grammar(*HOSTILE[name])}, child.run)
        assert not child._child or rss_of(child._child.watched) < OWN_BYTES


@pytest.mark.promise("T9")
def test_an_honest_one_passes_and_a_limit_ends_the_child(child: ReadyChild) -> None:
    schema = grammar("json_schema", {"anyOf": MANY[:4]})
    honest = {"a": schema, "b": grammar("regex", "[a-z]+@"), "c": grammar("lark", 'start: "a"')}
    check(honest, child.run)
    assert child._child
    with pytest.raises(UsageError, match="in time"):
        check(honest, lambda job, data: child.run(replace(job, seconds=0.0), data))
    with pytest.raises(UsageError, match="memory"):
        check(honest, lambda job, data: child.run(replace(job, rss_bytes=1), data))
    with pytest.raises(UsageError, match="tools: f: The schema can't be enforced: uniqueItems"):
        check({"a": schema, "tools: f": grammar("lark", 'start: %json {"uniqueItems": true}')}, child.run)
