"""A row with a constraint chooses only tokens of its grammar, whatever its logits are; other rows are unchanged."""

from __future__ import annotations

import json
import re

import mlx.core as mx
import pytest

from core.constraint import Constraint
from core.engine.constraints import RowGrammar
from core.engine.requests import Admit
from core.engine.sampling import RowSampler, pick_all, pick_drafted
from core.errors import UsageError
from core.models.text.call_grammar import json_rule
from core.sampling_options import Sampling
from tests.support.grammars import BYTES, END, OTHER_END, SIZE, THINK, THOUGHT

PEOPLE = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
PERSON = Constraint(kind="json_schema", source=PEOPLE)
HOT = Sampling(temperature=2.0, seed=11)


def admit(constraint: Constraint | None, sampling: Sampling = HOT) -> Admit:
    return Admit(bytes(16), sampling, eos=(END, OTHER_END), constraint=constraint)


def grammar(constraint: Constraint) -> RowGrammar:
    found = BYTES.of(admit(constraint))
    assert found
    return found


def sampler(constraint: Constraint | None, sampling: Sampling = HOT) -> RowSampler:
    row = admit(constraint, sampling)
    return RowSampler(row, SIZE, BYTES.of(row))


def noise(step: int, rows: int = 1) -> mx.array:
    """Random logits with digits, quotes and ends raised; otherwise numbers and names would be long."""
    likelier = mx.zeros((SIZE,))
    likelier[mx.array([*b'"}', END, OTHER_END])] = 4.0
    return 2 * mx.random.normal((rows, SIZE), key=mx.random.key(step)) + likelier


def answer(row: RowSampler, most: int = 400, start: int = 0) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < most and (not tokens or tokens[-1] not in (END, OTHER_END)):
        (picked,) = pick_all([row], noise(start + len(tokens)))
        tokens.append(picked.token)
    return tokens


def said(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode()


def allowed(row: RowGrammar) -> set[int]:
    marks = row.allowed().tolist()
    return {token for token, mark in enumerate(marks) if mark}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("constraint", "form"),
    [
        pytest.param(PERSON, r'\{"name": ".{0,5}", "age": \d+\}', id="json_schema"),
        pytest.param(Constraint(kind="regex", source="(yes|no)!{1,3}"), "(yes|no)!{1,3}", id="regex"),
        pytest.param(Constraint(kind="lark", source='start: "a" start "b" | "c"'), "a*cb*", id="lark"),
    ],
)
def test_noise_becomes_what_the_grammar_has(constraint: Constraint, form: str) -> None:
    for start in range(0, 4000, 1000):
        tokens = answer(sampler(constraint), start=start)
        assert tokens[-1] in (END, OTHER_END)
        assert re.fullmatch(form, said(tokens), re.DOTALL)


def test_any_end_of_the_model_ends_it_and_none_does_before() -> None:
    row = grammar(Constraint(kind="regex", source="ab?"))
    assert allowed(row) == {ord("a")}
    row.take(ord("a"))
    assert allowed(row) == {ord("b"), END, OTHER_END}
    row.take(ord("b"))
    assert allowed(row) == {END, OTHER_END}


def test_rows_beside_it_are_what_they_are_alone() -> None:
    free, shaped = sampler(None), sampler(PERSON)
    alone, other = sampler(None), sampler(PERSON)
    for step in range(30):
        logits = noise(step, 2)
        together = pick_all([free, shaped], logits)
        assert together == [*pick_all([alone], logits[:1]), *pick_all([other], logits[1:])]


def test_a_row_that_goes_on_is_what_it_would_have_been() -> None:
    whole = answer(sampler(PERSON, Sampling()))
    for cut in (1, len(whole) // 2, len(whole) - 1):
        later = sampler(PERSON, Sampling())
        later.follow(whole[:cut])
        assert answer(later, start=cut) == whole[cut:]


def test_guesses_confirm_what_would_have_been_chosen() -> None:
    plain = answer(sampler(PERSON, Sampling()))
    rows = mx.concatenate([noise(n) for n in range(6)])
    guesses = [*plain[:3], ord("?"), plain[4]]
    picked = pick_drafted(sampler(PERSON, Sampling()), rows, guesses)
    assert [each.token for each in picked] == plain[:4]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        HOT,
        Sampling(temperature=0.7, seed=5, logprobs=2, repetition_penalty=1.3),
        Sampling(logprobs=0, logit_bias={ord("n"): -50.0}),
    ],
    ids=["greedy", "hot", "told", "biased"],
)
def test_what_is_forced_is_taken_as_if_it_had_been_chosen(sampling: Sampling) -> None:
    one, rows = sampler(PERSON, sampling), [noise(step) for step in range(30)]
    chosen = [pick_all([one], logits)[0] for logits in rows]
    guesses = [picked.token for picked in chosen[:-1]]
    assert pick_drafted(sampler(PERSON, sampling), mx.concatenate(rows), guesses) == chosen


def test_what_was_prepared_is_what_is_allowed() -> None:
    asked, prepared = (grammar(Constraint(kind="regex", source="a[bc]+d")) for _ in range(2))
    for token in b"abcd":
        prepared.prepare()
        assert allowed(prepared) == allowed(asked)
        asked.take(token)
        prepared.take(token)


def test_what_is_forced_and_what_may_follow_is_known_before_it_is_chosen() -> None:
    row = grammar(Constraint(kind="regex", source="abc[de]f", think_end=(THOUGHT,)))
    assert (row.forced(9), row.allows([7, 8])) == ((), 2)
    row.take(THOUGHT)
    assert (row.forced(9), row.forced(2), row.forced(-1)) == ((*b"abc",), (*b"ab",), ())
    assert (row.allows(b"abce"), row.allows(b"abxe")) == (4, 2)
    row.take(ord("z"))
    assert (row.forced(9), row.allows(b"abc")) == ((), 0)


def test_what_is_thought_is_free_and_is_ended() -> None:
    thinking = Constraint(kind="regex", source="ab", think_end=(THOUGHT, 10))
    row = grammar(thinking)
    everything = set(range(SIZE)) - {END, OTHER_END}
    for token in (ord("x"), THOUGHT, ord("x"), 10, THOUGHT):
        assert allowed(row) == everything
        row.take(token)
    row.take(10)
    assert allowed(row) == {ord("a")}


@pytest.mark.parametrize("thinks", [True, False])
def test_a_model_may_begin_to_think(thinks: bool) -> None:
    row = grammar(Constraint(kind="regex", source="ab", think_start=(THINK,), think_end=(THOUGHT,)))
    assert allowed(row) == {ord("a"), THINK}
    row.take(THINK if thinks else ord("a"))
    if thinks:
        assert ord("z") in allowed(row)
        row.take(THOUGHT)
    assert allowed(row) == {ord("a") if thinks else ord("b")}


def test_reasoning_that_begins_with_several_tokens_begins_with_all_of_them() -> None:
    row = grammar(Constraint(kind="regex", source="ab", think_start=(THINK, *b"xy"), think_end=(THOUGHT,)))
    assert allowed(row) == {ord("a"), THINK}
    row.take(THINK)
    assert allowed(row) == {ord("x")}, "else its reader would take the reasoning for the answer"
    assert (row.forced(1), row.forced(9), row.allows(b"xyz"), row.allows(b"xz")) == ((*b"x",), (*b"xy",), 3, 1)
    for token in b"xyz":
        row.take(token)
    assert row.forced(9) == ()
    row.take(THOUGHT)
    assert allowed(row) == {ord("a")}


@pytest.mark.parametrize(
    ("kind", "source", "named"),
    [
        ("json_schema", '{"type": "object", "not": {}}', "not"),
        ("json_schema", '{"x-guidance": {"lenient": true}, "uniqueItems": true, "type": "array"}', "uniqueItems"),
        ("json_schema", '{"type": "integer", "minimum": 3, "maximum": 2}', "minimum"),
        ("json_schema", f'{{"type": "integer", "minimum": {-(1 << 63)}}}', "too large: -9223372036854775808"),
        ("json_schema", '{"type": "number", "maximum": 1e308}', "a bound of a number is too large: 1e308"),
        ("json_schema", '{"$ref": "http://example.com/x"}', "example.com"),
        ("json_schema", "{", "EOF"),
        ("json_schema", "[" * 60_000, "recursion"),
        ("regex", "(?=a)b", "look-around"),
        ("lark", "start: nothing", "nothing"),
    ],
)
def test_what_cannot_be_enforced_is_named(kind: str, source: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        grammar(Constraint(kind=kind, source=source))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        ({"exclusiveMinimum": 0, "maximum": 0.001}, "0.0005 0.001", "0 0.0"),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 1.5}, "1.25", "1 1.5"),
        ({"minimum": -1.5, "exclusiveMaximum": -1}, "-1.5 -1.25", "-1"),
        ({"exclusiveMinimum": 0, "maximum": 1}, "0.5 1", "0"),
        ({"exclusiveMinimum": 0, "maximum": 1e-10}, "0.00000000005", "0"),
    ],
)
def test_an_exclusive_bound_is_outside(bounds: dict[str, float], inside: str, outside: str) -> None:
    schema = {"type": "number", **bounds}
    whole = Constraint(kind="json_schema", source=json.dumps({"type": "array", "items": schema}))
    part = Constraint(kind="lark", source=f"start: {json_rule(schema, strict=True)}")
    for constraint, form in ((whole, "[{}]"), (part, "{}")):
        for number in (*inside.split(), *outside.split()):
            row = grammar(constraint)
            for byte in form.format(number).encode():
                row.take(byte)
            assert (row.problem is None and END in allowed(row)) == (number in inside.split()), number


def test_an_answer_that_leaves_its_grammar_is_told_so() -> None:
    row = grammar(Constraint(kind="regex", source="ab"))
    row.take(ord("z"))
    assert row.problem
    assert allowed(row) == {END, OTHER_END}
