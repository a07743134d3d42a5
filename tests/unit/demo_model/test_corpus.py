"""The demo model's facts hold their keywords, agree with the product, and training never sees a held-out question."""

from __future__ import annotations

import argparse
import re
from itertools import islice
from random import Random

import pytest

from core.plan.assign_layers import split_layers
from core.trust.levels import LEVELS
from tests.demo_model.corpus import Conversation, generate, other_turns
from tests.demo_model.exercises import sums
from tests.demo_model.facts import FIRST_QUESTION, Fact, all_facts, held_out, holds, normalized
from tests.demo_model.wording import disturbed
from tui.cli.parser import DEMO_PROMPT, parser
from tui.control.actions import key_title
from tui.control.keymap import EVERYTHING


@pytest.fixture(scope="module")
def corpus() -> list[Conversation]:
    return generate(0, 0.05)


@pytest.fixture(scope="module")
def facts() -> dict[str, Fact]:
    return {fact.id: fact for fact in all_facts()}


def test_every_answer_holds_its_keywords_and_has_many_questions(facts: dict[str, Fact]) -> None:
    assert len(facts) == len(all_facts()) >= 60
    assert [fact.id for fact in facts.values() if not holds(fact.answer, fact.keywords)] == []
    assert [fact.id for fact in facts.values() if len(fact.asked) < 40] == []


def test_no_question_belongs_to_two_facts() -> None:
    owners: dict[str, set[str]] = {}
    for fact in all_facts():
        for question in fact.asked:
            owners.setdefault(normalized(question), set()).add(fact.id)
    assert {question: ids for question, ids in owners.items() if len(ids) > 1} == {}


@pytest.mark.slow
def test_held_out_questions_are_never_in_training(corpus: list[Conversation], facts: dict[str, Fact]) -> None:
    questions = held_out()
    assert {asked.fact for asked in questions} <= {None, *facts}
    assert sum(asked.fact is not None for asked in questions) >= 290
    trained = {normalized(question) for conversation in corpus for question, _ in conversation}
    assert [asked.question for asked in questions if normalized(asked.question) in trained] == []


@pytest.mark.slow
def test_the_question_of_the_demo_is_trained_and_answered_right(
    corpus: list[Conversation], facts: dict[str, Fact]
) -> None:
    assert FIRST_QUESTION == DEMO_PROMPT
    answers = [c[0][1] for c in corpus if c[0][0] == FIRST_QUESTION]
    assert len(answers) >= 50
    assert set(answers) == {facts["split"].answer}


@pytest.mark.slow
def test_a_seed_makes_the_same_corpus() -> None:
    assert generate(4, 0.002) == generate(4, 0.002) != generate(5, 0.002)


def test_the_split_it_names_is_the_one_that_the_plan_makes(facts: dict[str, Fact]) -> None:
    counts = [len(r) for r in split_layers(16, [64, 32, 16])]
    assert [int(n) for n in re.findall(r"has (\d+)", facts["demo-split"].answer)] == counts
    levels = re.findall(r"\w+", facts["levels"].answer.partition(":")[2].partition(".")[0])
    assert [level for level in levels if level != "and"] == list(LEVELS)


def test_every_key_and_command_it_names_exists() -> None:
    text = " ".join(fact.answer for fact in all_facts())
    bound = {key_title(key) if len(key) > 1 else key for action in EVERYTHING for key in action.keys.split(",") if key}
    named = set(re.findall(r"Ctrl\+[A-Z]|F\d+|(?<=[Pp]ress )[a-z](?= )", text))
    assert named == {"Ctrl+O", "Ctrl+Q", "F1", "p"}
    assert named <= bound
    [commands] = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    assert set(re.findall(r"`macluster ([a-z]+)", text)) <= set(commands.choices)


def test_turns_without_a_fact_are_whole() -> None:
    turns = list(islice(other_turns(Random(0)), 2000))
    assert all(question.strip() and answer.strip() and "{" not in question for question, answer in turns)
    assert len({question for question, _ in turns}) >= 1200


def test_sums_are_right() -> None:
    rng = Random(3)
    for _ in range(300):
        _, answer = sums(rng)
        numbers = [int(n) for n in "".join(c if c.isdigit() else " " for c in answer).split()]
        # "2 plus 3 is 5." or "That is 5: 2 + 3 = 5."
        left, other, total = numbers[-3:]
        assert total == (left - other if "minus" in answer or " - " in answer else left + other)


def test_a_disturbed_question_keeps_most_of_itself() -> None:
    rng = Random(5)
    for _ in range(200):
        assert len(disturbed("which key opens the model picker?", rng)) >= 12
