"""A real model over simulated Macs: the tokens of mlx-lm, whatever happens to the Macs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import mlx_lm
import pytest

from core.requests.answers import ChatRequest, Message
from core.requests.conversations import SessionName
from core.requests.plans import LoadRequest
from core.sampling_options import Sampling
from tests.real.reference import greedy
from tests.real.served import served
from tests.support.cluster import Answer, begin, finish, running_demo, tokens_seen
from tui.cli.demo import Demo

pytestmark = pytest.mark.real

STORY = "Write a short story about a cat who learns to sail."
AGAIN = "Repeat this line four times: one fish, two fish, red fish, blue fish."
GB = (64.0, 32.0, 16.0, 8.0)  # memory of the Macs
TOKENS = 32
PERSON: Any = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Mike"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def expected(model: Path, *said: str, tokens: int = TOKENS) -> list[int]:
    """Tokens that mlx-lm answers to a chat of users' and the assistant's words in turn."""
    turns = [{"role": ("user", "assistant")[at % 2], "content": words} for at, words in enumerate(said)]
    loaded: Any = mlx_lm.load(str(model))[1]
    ids = loaded.apply_chat_template(turns, add_generation_prompt=True)
    answer = greedy(model, ids, tokens)
    ends = [at for at, token in enumerate(answer) if token in loaded.eos_token_ids]
    return answer[: ends[0] + 1] if ends else answer


@pytest.fixture(scope="session")
def story(model: Path) -> list[int]:
    found = expected(model, STORY)
    assert len(set(found)) > TOKENS / 2
    return found


async def said(demo: Demo, *words: str, tokens: int = TOKENS) -> Answer:
    """The answer to a chat of users' and the assistant's words in turn."""
    turns = tuple(Message(role="assistant" if at % 2 else "user", content=text) for at, text in enumerate(words))
    request = ChatRequest(messages=turns, max_tokens=tokens, sampling=Sampling())
    return await finish(demo.head, (await demo.head.client.chat(request)).request_id)


@pytest.mark.parametrize("macs", [1, 2, 3, 4])
async def test_greedy_tokens_are_those_of_mlx_lm(model: Path, story: list[int], macs: int) -> None:
    async with running_demo(model, GB[:macs]) as demo:
        assert demo.head.now.plan
        assert len(demo.head.now.plan.stages) == macs
        assert (await said(demo, STORY)).tokens == story


async def test_a_session_goes_on_over_the_macs_that_are_left(model: Path, story: list[int]) -> None:
    """Three Macs write an answer and save it; one dies in another answer; the session goes on over the two others."""
    async with running_demo(model, GB[:3]) as demo:
        head = demo.head
        first = await said(demo, "What is the capital of France?")
        second = await said(demo, "What is the capital of France?", first.text, "And of Italy?")
        assert second.tokens == expected(model, "What is the capital of France?", first.text, "And of Italy?")
        await head.client.save_session(SessionName(name="capitals"))
        request = await begin(head, STORY, TOKENS)
        await tokens_seen(head, request, 8)
        await demo.pull("mini")
        assert (await finish(head, request)).tokens == story
        assert head.now.plan
        assert len(head.now.plan.stages) == 2
        await head.client.load_session(SessionName(name="capitals"))
        talk = ("What is the capital of France?", first.text, "And of Italy?", second.text, "And of Spain?")
        third = await said(demo, *talk)
        assert third.tokens == expected(model, *talk)
        assert third.done.reused_tokens > first.done.prompt_tokens


async def test_drafts_change_no_token(model: Path, model_4bit: Path, story: list[int]) -> None:
    """The same weights in four bits draft for those in float32, and repeated words draft themselves."""
    async with running_demo(model, GB[:2], load=LoadRequest(model="", draft=str(model_4bit))) as demo:
        answer = await said(demo, STORY, tokens=16)
        assert answer.tokens == story[:16]
        assert answer.done.drafted_tokens > 0
    async with running_demo(model, GB[:2]) as demo:
        assert (await said(demo, AGAIN)).tokens == expected(model, AGAIN)


async def test_an_answer_follows_a_schema(model: Path) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    async with served(model, GB[:2]) as cluster:
        for temperature in (0, 1):
            reply = await cluster.chat(
                [{"role": "user", "content": "Invent a person."}],
                response_format=shape,
                temperature=temperature,
                max_tokens=60,
            )
            jsonschema.validate(json.loads(reply["content"]), PERSON)
