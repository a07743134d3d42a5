"""A stream stays alive while the model writes text that can't be shown yet, such as a tool call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.models.text.tokenizer import Tokens
from core.node.public_api import http_bodies
from tests.support.answers import ids_of, model, tokens
from tests.support.api import served_harness
from tests.support.waiting import until

__all__ = ["model", "tokens"]  # fixtures


@pytest.mark.parametrize(
    ("path", "fields", "alive", "shown"),
    [
        ("/chat/completions", {}, ": still there", '"content":"🐢"'),
        ("/messages", {"model": "claude-x"}, "event: ping", '"text":"🐢"'),
    ],
)
async def test_a_stream_hears_that_the_model_writes(
    tmp_path: Path,
    model: Path,
    tokens: Tokens,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    fields: dict[str, Any],
    alive: str,
    shown: str,
) -> None:
    monkeypatch.setattr(http_bodies, "QUIET_S", 0.0)
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, **fields}
    async with served_harness(tmp_path, model) as harness:
        asking = asyncio.ensure_future(harness.asker.post(path, json=body))
        await until(lambda: bool(harness.asked))
        (asked,) = harness.asked
        pieces = ids_of(tokens, "🐢")
        assert len(pieces) > 2, "the first ones are no character"
        harness.writes(asked, pieces)
        harness.ends(asked, "stop")
        said = (await asking).text
    assert alive in said
    assert said.index(alive) < said.index(shown)
