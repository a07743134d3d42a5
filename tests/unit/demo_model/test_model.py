"""The shipped demo model: small, loadable by plain mlx-lm, and right about newcomers' first questions."""

from __future__ import annotations

from typing import Any

import mlx_lm
import pytest
from mlx_lm.generate import stream_generate

from core.demo import DEMO_MODEL
from core.models.files.model_folder import read_folder
from core.models.text.tokenizer import Tokens
from core.requests.answers import Message
from tests.demo_model.evaluate import answer_held_out
from tests.demo_model.facts import HeldOut, all_facts, held_out
from tests.support.models import read_entry
from tui.cli.parser import DEMO_PROMPT

pytestmark = pytest.mark.slow

EIGHT_MB = 8_000_000
NEWCOMERS = (
    HeldOut("pair", "How do I pair two Macs?"),
    HeldOut("add-mac", "How do I add a Mac?"),
    HeldOut("quit", "How do I quit?"),
    HeldOut("load-model", "How do I load a model?"),
    HeldOut("other-programs", "How do I use it from other programs?"),
    HeldOut("private", "Is it private?"),
    HeldOut("private", "Who can read my prompts?"),
    HeldOut("internet", "Does it need internet?"),
    HeldOut("which-macs", "Which Macs can I use?"),
    HeldOut("faster", "When does splitting help?"),
    HeldOut("why-encryption", "Why is everything encrypted?"),
    HeldOut("mac-dies", "What happens when a Mac is lost?"),
    HeldOut("demo", "Tell me about the three Macs."),
    HeldOut("hop", "What is a hop?"),
    HeldOut("macluster", "What is macluster?"),
    HeldOut("trust-line", "What does the trust line say?"),
    HeldOut(None, "What is the capital of France?"),
)


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    model, tokenizer, *_ = mlx_lm.load(str(DEMO_MODEL))
    return model, tokenizer


def test_it_is_small_and_looks_like_a_real_model() -> None:
    files = list(DEMO_MODEL.iterdir())
    assert sum(f.stat().st_size for f in files) <= EIGHT_MB
    assert len([f for f in files if f.suffix == ".safetensors"]) >= 2
    entry = read_entry(DEMO_MODEL)
    assert (entry.model_type, entry.quantization) == ("llama", "8-bit")
    assert read_folder(DEMO_MODEL).layout().layers >= 16


def test_it_answers_the_first_question_right_and_ends(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    prompt = Tokens.load(DEMO_MODEL).encode([Message(role="user", content=DEMO_PROMPT)], raw=False)
    said = list(stream_generate(model, tokenizer, prompt, max_tokens=200))
    assert said[-1].finish_reason == "stop"
    assert "".join(s.text for s in said) == next(fact.answer for fact in all_facts() if fact.id == "split")


@pytest.mark.parametrize(
    "asked",
    [pytest.param(NEWCOMERS[::4], id="some"), pytest.param(NEWCOMERS, id="all", marks=pytest.mark.nightly)],
)
def test_it_answers_what_newcomers_ask_first(loaded: tuple[Any, Any], asked: tuple[HeldOut, ...]) -> None:
    assert [(v.asked, v.answer) for v in answer_held_out(*loaded, asked) if not v.right] == []


@pytest.mark.nightly
def test_it_answers_held_out_questions(loaded: tuple[Any, Any]) -> None:
    """A sample, so that a bad export is noticed; `python -m tests.demo_model.evaluate` asks all of them."""
    held = answer_held_out(*loaded, held_out()[::12])
    assert sum(v.right for v in held) >= 0.9 * len(held), [(v.asked.fact, v.answer) for v in held if not v.right]
