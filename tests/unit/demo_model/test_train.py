"""The way from corpus to model directory at a tiny size, without PyTorch: that part needs a GPU machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlx_lm
import numpy as np
import pytest

from core.demo import DEMO_MODEL
from core.models.files.model_folder import read_folder
from core.models.slicing.loading import load_slice
from core.models.text.tokenizer import Tokens
from core.requests.answers import Message
from tests.demo_model.corpus import ASSISTANT, END, USER, conversation_text
from tests.demo_model.evaluate import repeats
from tests.demo_model.export import CONTEXT, export
from tests.demo_model.facts import FIRST_QUESTION
from tests.demo_model.network import Size
from tests.demo_model.train import STARTS_FILE, TOKENIZER, TOKENS_FILE, Recipe, _rows, prepare, read_weights, spoken
from tests.support.models import read_entry

TINY = Size(layers=2, intermediate=64)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    prepare(out, 0, 0.005, TOKENIZER)
    return out


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("weights")
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        name: (0.1 * random.standard_normal(shape)).astype(np.float32) for name, shape in TINY.shapes().items()
    }
    names = list(arrays)
    np.savez(out / "weights-1-of-2.npz", **{n: arrays[n] for n in names[:5]})
    np.savez(out / "weights-2-of-2.npz", **{n: arrays[n] for n in names[5:]})
    return out


@pytest.fixture(scope="module")
def model(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("model")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(DEMO_MODEL / name, out)
    export(weights, out, TINY)
    return out


def test_the_full_size_fits_into_the_repository() -> None:
    count = sum(int(np.prod(shape)) for shape in Size().shapes().values())
    assert 5_500_000 <= count <= 6_500_000
    # 8 bits, and two float32 numbers a group of 64
    assert count * (1 + 8 / 64) + 200_000 <= 7_500_000
    assert all(shape[-1] % 64 == 0 for shape in Size().shapes().values())


def test_prepared_data_is_the_corpus(data: Path) -> None:
    ids, starts = np.fromfile(data / TOKENS_FILE, np.uint16), np.fromfile(data / STARTS_FILE, np.uint32)
    assert 2000 <= len(starts) <= 3000
    assert ids.max() < TINY.vocab
    assert (ids[starts] == 1).all()


def test_weights_of_another_size_are_refused(weights: Path) -> None:
    assert {name: a.shape for name, a in read_weights(weights, TINY).items()} == TINY.shapes()
    with pytest.raises(ValueError, match="not those of"):
        read_weights(weights, Size())


def test_only_answers_are_learned() -> None:
    ids = np.array([1, 7, 8, 2, 9, 10, 0, 1, 7, 2, 11, 0], np.uint16)
    assert spoken(ids).astype(int).tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1]


def test_rows_begin_with_a_conversation_and_noise_spares_the_answers(data: Path) -> None:
    rows = _rows(data, Recipe(batch=1536), TINY.vocab)
    clean = set(np.fromfile(data / TOKENS_FILE, np.uint16).tolist())
    for _ in range(20):
        batch = next(rows)
        assert (batch[:, 0, 0] == 1).all()
        assert batch.shape[0] * (batch.shape[1] - 1) == 1536
        assert set(batch[..., 0].ravel().tolist()) <= clean | set(range(3, TINY.vocab))
        assert ((batch[..., 0] == 0) <= (batch[..., 1] == 1)).all()


def test_the_exported_model_loads_like_any_other(model: Path) -> None:
    entry = read_entry(model)
    assert (entry.model_type, entry.layers, entry.quantization, entry.context_max) == ("llama", 2, "8-bit", CONTEXT)
    assert len(list(model.glob("*.safetensors"))) == 2
    loaded, tokenizer, *_ = mlx_lm.load(str(model))
    assert len(loaded.layers) == 2
    assert tokenizer.eos_token_ids == {0}
    stage = load_slice(read_folder(model), 1, 2, embed=False, output=False)
    assert 0 < stage.weight_bytes < entry.total_bytes


def test_prompts_are_rendered_as_in_training() -> None:
    tokens = Tokens.load(DEMO_MODEL)
    chat = [Message(role="system", content="Be brief."), Message(role="user", content=f" {FIRST_QUESTION} ")]
    whole = conversation_text([(FIRST_QUESTION, "By layers.")])
    assert _text(tokens, tokens.encode(chat, False)) == whole.removesuffix(f"By layers.{END}")
    more = [*chat, Message(role="assistant", content="By layers."), Message(role="user", content="and why?")]
    assert _text(tokens, tokens.encode(more, False)) == f"{whole}{USER}and why?{ASSISTANT}"
    assert tokens.eos == {0}


def test_a_long_chat_is_cut_to_its_last_turns() -> None:
    tokens = Tokens.load(DEMO_MODEL)
    chat = [Message(role="assistant" if i % 2 else "user", content=f"turn {i}") for i in range(41)]
    text = _text(tokens, tokens.encode(chat, False))
    assert text.startswith(f"{USER}turn 30{ASSISTANT}turn 31{END}")
    assert text.endswith(f"{USER}turn 40{ASSISTANT}")


def test_any_text_survives_the_tokenizer() -> None:
    tokens = Tokens.load(DEMO_MODEL)
    text = "Grüße 12345 ✓ 猫\n\tx = {'a': 1}"
    assert _text(tokens, tokens.encode([Message(role="user", content=text)], True)) == text


def test_loops_are_found() -> None:
    assert repeats("the same words again and " * 4)
    assert not repeats("One morning Anna found a red lamp in the garden. A cat came by.")
    assert not repeats(", ".join(map(str, range(1, 30))))


def _text(tokens: Tokens, ids: list[int]) -> str:
    stream = tokens.stream()
    return "".join([*(stream.add(i) for i in ids), stream.held])
