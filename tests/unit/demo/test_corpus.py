"""The demo model's corpus: its facts are true of this project, and nothing held out is trained on."""

from __future__ import annotations

import argparse
from collections import Counter
from random import Random

import pytest

from core.demo.training import corpus_talk
from core.demo.training.all_facts import ASKS, all_facts
from core.demo.training.corpus import (
    Conversation,
    generate,
    held_out,
    held_out_follow_ups,
    held_out_keys,
    held_out_outside,
)
from core.demo.training.corpus_disturbed import disturbed
from core.demo.training.corpus_phrases import FIRST_QUESTION, templated
from core.demo.training.facts import Fact, normal, parts, right
from core.link.liveness import DEAD_S, SUSPECT_S
from core.mac.memory import MEMORY_FLOOR_BYTES, MEMORY_RESERVE_BYTES
from core.plan.split_layers import split_layers
from core.settings import CONTROL_PORT, DEFAULT_CONTEXT
from core.trust.levels import LEVELS
from tui.cli.parser import DEMO_PROMPT, parser
from tui.control.actions import key_title
from tui.control.keymap import EVERYTHING

# what follows the name of a command in what it says
WORDS = set(parts("hop|solo|compare|scenarios|loop|list|revoke|save|load|delete|install|trim|model|--continue", "|"))


@pytest.fixture(scope="module")
def corpus() -> list[Conversation]:
    return generate(0, 0.3)


@pytest.fixture(scope="module")
def facts() -> dict[str, Fact]:
    return {f.name: f for f in all_facts()}


def test_there_are_many_facts_and_every_answer_holds_its_keys(facts: dict[str, Fact]) -> None:
    assert len(facts) == len(all_facts()) >= 450
    assert [(f.name, a) for f in facts.values() for a in f.answers if not right(f, a)] == []
    asked = {f.name: len({*f.asks, *templated(f)}) for f in facts.values()}
    assert {name: count for name, count in asked.items() if count < 12} == {}
    assert all(len(f.answers) >= 2 and f.keys for f in facts.values())
    named = {line.partition(":")[0] for file in ASKS.glob("*.txt") for line in file.read_text("utf-8").splitlines()}
    assert named - set(facts) == set()


def test_no_question_belongs_to_two_facts(facts: dict[str, Fact]) -> None:
    owners: dict[str, set[str]] = {}
    for f in facts.values():
        for question in (*f.asks, *templated(f)):
            owners.setdefault(normal(question), set()).add(f.name)
    assert {q: names for q, names in owners.items() if len(names) > 1} == {}


@pytest.mark.slow
def test_held_out_questions_are_never_in_training(corpus: list[Conversation], facts: dict[str, Fact]) -> None:
    assert 150_000 <= len(corpus) <= 200_000
    trained = {normal(question) for conversation in corpus for question, _ in conversation}
    questions = held_out()
    assert {h.fact for h in questions} <= set(facts)
    named = Counter(h.fact for h in held_out_keys())
    assert {f.name for f in facts.values() if f.form in ("key", "command")} <= set(named)
    assert set(named.values()) == {10}  # so that nine of ten is nine tenths
    assert (len(questions), len(held_out_outside())) == (400, 150)
    asked = [*(h.question for h in (*questions, *held_out_keys())), *(f.question for f in held_out_follow_ups())]
    assert [q for q in (*asked, *held_out_outside()) if normal(q) in trained] == []


@pytest.mark.slow
def test_the_question_of_the_demo_is_trained_and_answered_right(
    corpus: list[Conversation], facts: dict[str, Fact]
) -> None:
    assert FIRST_QUESTION == DEMO_PROMPT
    answers = [c[0][1] for c in corpus if c[0][0] == FIRST_QUESTION]
    assert len(answers) >= 300
    assert all(right(facts["split"], a) for a in answers)


def test_a_seed_makes_the_same_corpus() -> None:
    assert generate(4, 0.01) == generate(4, 0.01) != generate(5, 0.01)


def test_the_split_it_tells_is_the_one_that_the_plan_makes(facts: dict[str, Fact]) -> None:
    ranges = split_layers(16, [64, 32, 16])
    assert [len(r) for r in ranges] == [9, 5, 2]
    for mac, part in zip(("studio", "mbp", "mini"), ranges, strict=True):
        found = facts[f"{mac}layers"]
        assert f"{len(part)} layers" in found.keys
        assert all(str(part.start) in a and str(part.stop - 1) in a for a in found.answers)


def test_every_key_it_names_does_what_it_says(facts: dict[str, Fact]) -> None:
    bound = {key_title(key).lower() if len(key) > 1 else key for a in EVERYTHING for key in a.keys.split(",") if key}
    named = {f.name: f.keys[0] for f in facts.values() if f.form == "key"}
    assert {name for name, key in named.items() if key not in bound} == set()
    by_title: dict[str, list[str]] = {}
    for action in EVERYTHING:
        by_title.setdefault(action.title, []).extend(action.keys.split(","))
    assert by_title["Choose a model"] == [named["key-models"]]
    assert named["key-palette"] in by_title["All commands"]
    assert by_title["New chat"] == [named["key-new"]]
    assert by_title["Ask the last question again"] == [named["key-retry"]]
    assert named["key-help"] in by_title["Help for the focused pane"]
    assert named["key-quit"] in by_title["Quit"]
    assert named["key-panes"] in by_title["One pane, or the whole dashboard"]
    assert by_title["Zoom the focused pane in or out"] == [named["key-zoom"]]


def test_every_command_it_names_exists(facts: dict[str, Fact]) -> None:
    [sub] = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    commands = [f.keys[0].strip("`").removeprefix("macluster").split() for f in facts.values() if f.form == "command"]
    # a command that is younger than the last training is not known to the model
    assert {words[0] for words in commands if words} <= set(sub.choices)
    options = {name for choice in sub.choices.values() for a in choice._actions for name in a.option_strings}
    assert {word for words in commands for word in words[1:]} <= WORDS | options
    spoken = {k for f in facts.values() for key in f.keys for k in key.split("/") if k.startswith("--")}
    assert spoken <= options | {"--version"}


def test_numbers_are_those_of_the_settings(facts: dict[str, Fact]) -> None:
    assert facts["port"].keys == (str(CONTROL_PORT),)
    assert str(DEFAULT_CONTEXT) in facts["context"].keys
    assert f"{MEMORY_RESERVE_BYTES // 10**9} gb" in facts["usable"].keys
    assert f"{MEMORY_FLOOR_BYTES // 10**9} gb" in facts["floor"].keys
    assert f"{DEAD_S} seconds" in facts["liveness"].keys
    assert f"{SUSPECT_S} seconds" in facts["suspect"].keys
    assert facts["levels"].keys == LEVELS


def test_every_maker_of_small_talk_gives_a_turn() -> None:
    rng = Random(0)
    for maker, _ in corpus_talk.OTHERS:
        turns = [maker(rng) for _ in range(300)]
        assert all(question.strip() and answer.strip() and "{" not in question for question, answer in turns)
        assert len({question for question, _ in turns}) >= 15


def test_sums_are_right() -> None:
    rng = Random(3)
    for _ in range(300):
        _, answer = corpus_talk.sums(rng)
        numbers = [int(n) for n in "".join(c if c.isdigit() else " " for c in answer).split()]
        # "2 plus 3 is 5." or "That is 5: 2 + 3 = 5."
        left, other, total = numbers[-3:]
        assert total == (left - other if "minus" in answer or " - " in answer else left + other)


def test_a_disturbed_question_keeps_most_of_itself() -> None:
    rng = Random(5)
    for _ in range(200):
        assert len(disturbed("which key opens the model picker?", rng)) >= 12
