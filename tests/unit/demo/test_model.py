"""The demo model that is shipped: small, loadable by plain mlx-lm, and right about what it is asked first."""

from __future__ import annotations

import mlx_lm
import pytest
from mlx_lm.generate import stream_generate

from core.demo import DEMO_MODEL
from core.demo.training.corpus import held_out, held_out_keys
from core.demo.training.evaluate import answer_held_out
from core.models.files.model_folder import read_folder
from core.models.text.tokenizer import Tokens
from core.requests.answers import Message
from tests.support.models import read_entry
from tui.cli.parser import DEMO_PROMPT

EIGHT_MB = 8_000_000


def test_it_is_small_and_looks_like_a_real_model() -> None:
    files = list(DEMO_MODEL.iterdir())
    assert sum(f.stat().st_size for f in files) <= EIGHT_MB
    assert len([f for f in files if f.suffix == ".safetensors"]) >= 2
    entry = read_entry(DEMO_MODEL)
    assert (entry.model_type, entry.quantization) == ("llama", "8-bit")
    assert read_folder(DEMO_MODEL).layout().layers >= 16


def test_it_answers_the_first_question_right_and_ends() -> None:
    model, tokenizer = mlx_lm.load(str(DEMO_MODEL))[:2]
    prompt = Tokens.load(DEMO_MODEL).encode([Message(role="user", content=DEMO_PROMPT)], raw=False)
    said = list(stream_generate(model, tokenizer, prompt, max_tokens=200))
    text = "".join(s.text for s in said)
    assert said[-1].finish_reason == "stop"
    assert "contiguous" in text
    assert "usable memory" in text
    assert "largest remainder" in text


@pytest.mark.slow
def test_it_answers_held_out_phrasings() -> None:
    """A sample, so that a bad export is noticed; the full evaluation is `python -m core.demo.training.evaluate`."""
    model, tokenizer = mlx_lm.load(str(DEMO_MODEL))[:2]
    for asked, least in ((held_out()[::17], 18), (held_out_keys()[::35], 28)):
        held = answer_held_out(model, tokenizer, asked)
        assert sum(h.right for h in held) >= least, [(h.asked.fact, h.said.text) for h in held if not h.right]
