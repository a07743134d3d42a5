"""A draft model on the head: its memory, the plan's text about it, and the vocabulary it must share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import DoesNotFit, UnsupportedModel
from core.events import Peer
from core.models.files.model_folder import read_folder
from core.models.text.vocabulary import ids_fingerprint
from core.plan.draft_model import DraftOnHead, budgets_beside_draft, draft_on_head
from core.settings import GB
from tests.support.maker import make_model

HEAD, OTHER = (Peer(device_id=name, name=name, budget_bytes=8 * GB) for name in ("studio", "mini"))


def test_the_head_has_less_for_layers_and_the_others_have_what_they_had() -> None:
    assert budgets_beside_draft(None, [HEAD, OTHER]) == [HEAD, OTHER]
    head, other = budgets_beside_draft(DraftOnHead("small", 3 * GB), [HEAD, OTHER])
    assert (head.budget_bytes, other) == (5 * GB, OTHER)
    with pytest.raises(DoesNotFit, match=r"The draft large needs 9.0 GB on studio, which has 8.0 GB usable") as short:
        budgets_beside_draft(DraftOnHead("large", 9 * GB), [HEAD, OTHER])
    assert "smaller draft" in short.value.fix


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "small"
    make_model(directory, "llama", layers=2)
    return directory


def test_it_takes_its_weights_its_caches_and_what_it_computes_in(small: Path) -> None:
    layout = read_folder(small).layout()
    short, long = (draft_on_head("small", layout, context, HEAD).needed_bytes for context in (100, 1100))
    kept = sum(cache.bytes_for(1000, None) for cache in layout.caches)
    assert layout.total_bytes < short <= long - kept


def changed(small: Path, directory: Path, change: str) -> Path:
    content: dict[str, Any] = json.loads((small / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.__getitem__)[-2:]
    if change == "order":
        content["model"]["vocab"] = dict(reversed(vocabulary.items()))
    else:
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    directory.mkdir()
    (directory / "tokenizer.json").write_text(json.dumps(content))
    return directory


@pytest.mark.parametrize(("change", "is_same"), [("order", True), ("ids", False)])
def test_tokenizers_are_the_same_where_every_id_is_the_same_text(
    small: Path, tmp_path: Path, change: str, is_same: bool
) -> None:
    other = changed(small, tmp_path / "other", change)
    assert (ids_fingerprint(other) == ids_fingerprint(small)) is is_same


def test_a_model_whose_tokens_are_nowhere_listed_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"has no tokenizer\.json"):
        ids_fingerprint(tmp_path)
