"""A real small model guesses as mlx-lm continues, whatever it had read before."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from core.engine.sampling import greedy
from core.errors import UnsupportedModel
from core.models.files.model_folder import read_folder
from core.models.slicing.building import build
from core.worker.draft_model import CHUNK, LoadedDraft, load_draft
from tests.support.maker import make_model

pytestmark = pytest.mark.slow

VOCABULARY = 512


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("draft") / "small"
    make_model(made, "llama", layers=2, vocab=VOCABULARY)
    return made


@pytest.fixture(scope="module")
def draft(directory: Path) -> LoadedDraft:
    return load_draft(directory, VOCABULARY)


def test_it_goes_on_as_mlx_lm_does_with_whatever_history_it_is_given(directory: Path, draft: LoadedDraft) -> None:
    model = build(read_folder(directory)).model

    def expected(tokens: list[int], count: int) -> tuple[int, ...]:
        caches, said = make_prompt_cache(model), list(tokens)
        logits = model(mx.array([said]), cache=caches)[:, -1]
        for _ in range(count):
            said.append(greedy(logits))
            logits = model(mx.array([said[-1:]]), cache=caches)[:, -1]
        return tuple(said[len(tokens) :])

    first = [11, 12, 13, 14, 15]
    guessed = expected(first, 4)
    histories = [
        first,
        [*first, *guessed],  # all were right
        [*first, *guessed[:2], 77],  # the third one was wrong
        [*first[:3], 99],  # another request
        [7],
        [20 + number % 400 for number in range(CHUNK + 30)],
        [*first, *guessed],
    ]
    for history in histories:
        draft.read(history)
        assert draft.propose(4) == expected(history, 4)
    draft.read([*first, *guessed])
    draft.read(first)
    assert draft.propose(4) == guessed


def test_it_says_no_token_that_the_other_model_does_not_know(directory: Path, draft: LoadedDraft) -> None:
    draft.read([11, 12, 13])
    guessed = draft.propose(6)
    known = max(guessed)
    few = load_draft(directory, known)
    few.read([11, 12, 13])
    assert few.propose(6) == guessed[: guessed.index(known)]


def test_it_is_silent_where_it_does_not_know_a_token(directory: Path) -> None:
    draft = load_draft(directory, VOCABULARY)
    draft.read([11, VOCABULARY, 13])
    assert draft.propose(2) == ()


def test_one_that_cannot_take_tokens_back_is_refused(tmp_path: Path) -> None:
    make_model(tmp_path / "windowed", "llama_sliding", layers=2)
    with pytest.raises(UnsupportedModel, match="windowed can't trim"):
        load_draft(tmp_path / "windowed", VOCABULARY)
