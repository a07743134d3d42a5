"""T14: after a kept answer, nothing of the prompt or the answer lies in clear in any file of any Mac."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from core.models.made.maker import make_model
from core.models.text.tokenizer import Tokens
from core.node.disks.conversations import SUFFIX
from core.requests.answers import Message
from core.requests.conversations import Conversation, KeptTurn
from tests.support.cluster import ask, running_demo

pytestmark = pytest.mark.slow

PROMPT = "the canary sleeps where nobody else may read its dream"


@pytest.mark.promise("P30", "T14")
async def test_no_file_of_any_mac_holds_the_words_or_the_tokens(tmp_path: Path) -> None:
    model = tmp_path / "llama"
    make_model(model, "llama")
    async with running_demo(model, (64, 32)) as demo:
        answer = await ask(demo.head, PROMPT, 40)
        turns = (KeptTurn(role="user", text=PROMPT, at=1.0), KeptTurn(role="assistant", text=answer.text, at=2.0))
        kept = Conversation(id="ab" * 16, title=PROMPT, created_at=1.0, changed_at=1.0, turns=turns)
        await demo.head.client.keep_conversation(kept)
        files = [path for path in demo.home.root.parent.rglob("*") if path.is_file()]
        written = {path: path.read_bytes() for path in files}
        assert any(path.is_relative_to(demo.home.tokens) for path in files), "the head keeps a log of the tokens"
        assert any(path.suffix == SUFFIX for path in files), "and the conversation"
    prompt = Tokens.load(model).encode([Message(role="user", content=PROMPT)], raw=False)
    words = [said[i : i + 8] for said in (PROMPT.encode(), answer.text.encode()) for i in range(len(said) - 7)]
    runs = [ids[i : i + 4] for ids in (prompt, answer.tokens) for i in range(len(ids) - 3)]
    numbers = [struct.pack(f"{order}4{width}", *run) for run in runs for order in "<>" for width in "HIQ"]
    spelled = [", ".join(map(str, run)).encode() for run in runs] + [",".join(map(str, run)).encode() for run in runs]
    canaries = {*words, *numbers, *spelled}
    assert len(canaries) > 300
    for path, content in written.items():
        assert not [canary for canary in canaries if canary in content], path
