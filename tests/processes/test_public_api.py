"""The API over a real cluster, used with OpenAI's own client, which checks every body."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
import mlx.core as mx
import mlx_lm
import psutil
import pydantic
import pytest
import pytest_asyncio

from core.bench.scenarios.definitions import Scenario
from core.bench.scenarios.load_generator import AskedModel, measured
from core.bench.scenarios.percentiles import RATE, SEGMENTS
from core.bench.scenarios.report import LoadLevel, result
from core.demo import DEMO_MODEL
from core.engine.scheduler import MAX_SCORED_TOKENS
from core.errors import NodeError
from core.events import TokenEvent
from core.models.text.tokenizer import Tokens
from core.requests.answers import ChatRequest, Message
from core.requests.plans import LoadRequest
from core.settings import DEFAULT_ROWS
from core.trust.api_keys import ApiKeys
from tests.support.cluster import ask, finish, running_demo
from tests.support.crowd import Crowd
from tests.support.scripted import make_scripted
from tests.support.waiting import until
from tui.cli.demo import Demo
from tui.cli.evaluation import api_of, directory_of
from tui.cli.watch import Watch

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sesame"
PROMPT = "a hop is"
ASKED: Any = [{"role": "user", "content": PROMPT}]
CALLS = [("look_up", {"word": "höp"}), ("look_up", {"word": "ring", "deep": True})]
TOKENS = 16


@cache
def openai() -> Any:
    """OpenAI's package, whose import takes half a second, in each process that collects the tests."""
    return import_module("openai")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """A cluster, and a client of the API of one of its Macs."""

    def __init__(self, demo: Demo, port: int, mac: int = 0) -> None:
        self.demo, self.url, self.model = demo, f"http://127.0.0.1:{port}/v1", demo.model.rpartition("/")[2]
        ApiKeys(demo._home(mac).api_keys).add("tests", 1.0, KEY)
        import anthropic  # the import takes two seconds, in each process that collects the tests

        self.anthropic = anthropic.AsyncAnthropic(
            base_url=self.url.removesuffix("/v1"), api_key=KEY, max_retries=0, _strict_response_validation=True
        )
        self.client = openai().AsyncOpenAI(
            base_url=self.url, api_key=KEY, max_retries=0, _strict_response_validation=True
        )

    member: Served

    async def close(self) -> None:
        await self.client.close()
        await self.anthropic.close()

    async def ask(self, **fields: Any) -> Any:
        return await self.client.chat.completions.create(
            **{"model": self.model, "messages": ASKED, "max_tokens": TOKENS, **fields}
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    ports, model = (free_port(), free_port()), make_scripted(tmp_path_factory.mktemp("scripted"))
    async with running_demo(model, (64, 32, 16), api_ports=ports) as demo:
        served = Served(demo, ports[0])
        served.member = Served(demo, ports[1], 1)
        async with asyncio.timeout(120):  # its head announces the plan with the next beat
            while not (await served.member.client.models.list()).data:  # noqa: ASYNC110 - another process reports it
                await asyncio.sleep(0.05)
        yield served
        await served.close()
        await served.member.close()


async def test_a_client_hears_what_the_cluster_says(served: Served) -> None:
    expected = await ask(served.demo.head, PROMPT, TOKENS)
    assert len(set(expected.tokens)) > TOKENS / 2
    assert [model.id for model in (await served.client.models.list()).data] == [served.model]
    whole = await served.ask(logprobs=True, top_logprobs=2)
    (choice,) = whole.choices
    assert (choice.message.content, choice.finish_reason) == (expected.text, "length")
    assert (whole.usage.completion_tokens, len(choice.logprobs.content)) == (TOKENS, TOKENS)
    assert whole.usage.prompt_tokens_details.cached_tokens > 0, "it was asked before"
    said = ["", ""]
    async for chunk in await served.ask(stream=True, n=2, stream_options={"include_usage": True}):
        for each in chunk.choices:
            said[each.index] += each.delta.content or ""
    assert said == [expected.text] * 2
    assert chunk.usage.completion_tokens == 2 * TOKENS
    raw = ChatRequest(messages=(Message(role="user", content=PROMPT),), raw=True, max_tokens=TOKENS)
    expected = await finish(served.demo.head, (await served.demo.head.client.chat(raw)).request_id)
    completions: Any = served.client.completions
    asked = {"model": served.model, "max_tokens": TOKENS, "logprobs": 1}
    plain = (await completions.create(**asked, prompt=PROMPT)).choices[0]
    assert plain.text == expected.text
    ids = Tokens.load(Path(served.demo.model)).encode(raw.messages, raw=True)
    both = await completions.create(**asked, prompt=[ids, ids[1:]], n=2)
    assert [choice.text == expected.text for choice in both.choices] == [True, True, False, False]
    assert both.usage.prompt_tokens == 2 * len(ids) - 1
    echoed = (await completions.create(model=served.model, max_tokens=TOKENS, prompt=ids, echo=True)).choices[0].text
    assert echoed == PROMPT + expected.text
    with pytest.raises(openai().BadRequestError, match="contains token 99999, which this model does not have"):
        await completions.create(**asked, prompt=[99999])


async def test_how_likely_each_token_of_a_prompt_was_is_what_mlx_lm_says(served: Served) -> None:
    model, tokenizer = mlx_lm.load(served.demo.model)[:2]
    ids = tokenizer.encode(PROMPT) * 25
    assert len(ids) > 2 * MAX_SCORED_TOKENS
    completions: Any = served.client.completions
    for _ in range(2):  # the second time it is in memory, which changes nothing
        scored = await completions.create(
            model=served.model, prompt=[ids, ids[:9]], max_tokens=1, logprobs=1, echo=True, temperature=0
        )
        for choice, prompt in zip(scored.choices, (ids, ids[:9]), strict=True):
            logits = model(mx.array([prompt]))[0]
            logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            expected: Any = [logprobs[at, token].item() for at, token in enumerate(prompt[1:])]
            told = choice.logprobs
            assert told.token_logprobs[:-1] == pytest.approx([0.0, *expected], abs=1e-4)
            best: Any = mx.argmax(logprobs, axis=-1).tolist()
            names = [tokenizer.decode([token]) for token in (*best, *prompt[1:])]
            names = [
                f"token_id:{token}" if "\ufffd" in name else name
                for name, token in zip(names, (*best, *prompt[1:]), strict=True)
            ]
            assert [next(iter(top)) for top in told.top_logprobs[1:]] == names[: len(best)]
            assert told.tokens[1:-1] == names[len(best) :]
            assert [len(told.tokens), len(told.text_offset)] == [len(prompt) + 1] * 2
            assert told.text_offset[-1] == len(choice.text) - len(told.tokens[-1])


async def test_a_client_calls_tools_and_gives_back_what_they_came_to(served: Served) -> None:
    tools: Any = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    whole = await served.ask(tools=tools, max_tokens=100)
    (choice,) = whole.choices
    said = choice.message
    assert (choice.finish_reason, said.content, said.reasoning_content) == (
        "tool_calls",
        "Let me see.",
        "I look it up.",
    )
    assert [(call.function.name, json.loads(call.function.arguments)) for call in said.tool_calls] == CALLS
    async with served.client.chat.completions.stream(
        model=served.model, messages=ASKED, tools=tools, max_tokens=100
    ) as stream:
        last = (await stream.get_final_completion()).choices[0]
    assert (last.finish_reason, last.message.content) == ("tool_calls", "Let me see.")
    assert [(c.function.name, json.loads(c.function.arguments)) for c in last.message.tool_calls or ()] == CALLS
    alone = await served.ask(tools=tools, max_tokens=100, parallel_tool_calls=False, n=2)
    for each in alone.choices:
        assert (each.finish_reason, len(each.message.tool_calls)) == ("tool_calls", 1)
    results = [{"role": "tool", "tool_call_id": call.id, "content": "a step"} for call in said.tool_calls]
    history = [*ASKED, said.model_dump(exclude_none=True), *results]
    after = await served.ask(tools=tools, messages=history)
    assert (after.choices[0].message.content, after.choices[0].finish_reason) == ("It is a step of the ring.", "stop")
    assert after.usage.prompt_tokens_details.cached_tokens > whole.usage.prompt_tokens_details.cached_tokens
    torn = await served.ask(tools=tools, messages=[{"role": "user", "content": "torn"}])
    assert torn.choices[0].message.content == "Well: <tool_call>{torn</tool_call> then."
    assert (torn.choices[0].message.tool_calls, torn.choices[0].finish_reason) == (None, "stop")


async def test_anthropics_client_is_answered_in_its_form(served: Served) -> None:
    import anthropic

    tools: Any = [{"name": "look_up", "input_schema": {"type": "object"}}]
    asked: Any = {"model": "claude-opus-9", "messages": ASKED, "tools": tools, "max_tokens": 100}
    client: Any = served.anthropic
    whole = await client.messages.create(**asked)
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    async with client.messages.stream(**asked) as stream:
        kinds = [event.type async for event in stream]
        last = await stream.get_final_message()
    assert (kinds[0], kinds[-1], kinds.count("content_block_stop")) == ("message_start", "message_stop", 4)
    for message in (whole, last):
        thought, words, *calls = message.content
        assert (thought.type, words.type, message.stop_reason) == ("thinking", "text", "tool_use")
        assert (thought.thinking, words.text) == ("I look it up.", "Let me see.")
        assert [(call.name, call.input) for call in calls] == CALLS
    listed = (await client.models.list()).data
    assert [model.id for model in listed] == [served.model, f"claude-{served.model}"]
    assert listed[0].capabilities
    read = last.usage.input_tokens + (last.usage.cache_read_input_tokens or 0)
    assert (await client.messages.count_tokens(model="", messages=ASKED, tools=tools)).input_tokens == read
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": "a step"} for block in whole.content[2:]]
    answer = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in whole.content]}
    history = [*ASKED, answer, {"role": "user", "content": results}]
    after = await client.messages.create(**{**asked, "messages": history, "stop_sequences": [" ring"]})
    assert [block.text for block in after.content if block.type == "text"] == ["It is a step of the"]
    assert (after.stop_reason, after.stop_sequence) == ("stop_sequence", " ring")
    for fields, status, kind in (
        ({"model": "nonesuch"}, 404, "not_found_error"),
        ({"extra_body": {"temperature": 9}}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": "one two " * 5000}]}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, 400, "invalid_request_error"),
    ):
        with pytest.raises(anthropic.APIStatusError) as refused:
            await client.messages.create(**{**asked, **fields})
        assert (refused.value.status_code, refused.value.type) == (status, kind)


async def test_a_response_is_streamed_gone_on_with_and_forgotten(served: Served) -> None:
    tools: Any = [
        {"type": "function", "name": "look_up", "parameters": {"type": "object"}, "strict": False},
        {"type": "web_search"},
    ]
    responses, asked = served.client.responses, {"model": served.model, "tools": tools, "max_output_tokens": 100}
    whole = await responses.create(**asked, input=PROMPT, instructions="Be brief.")
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    calls: Any = [item for item in whole.output if item.type == "function_call"]
    assert (whole.status, whole.output_text) == ("completed", "Let me see.")
    assert [(call.name, json.loads(call.arguments)) for call in calls] == CALLS
    events = [event async for event in await responses.create(**asked, input=ASKED, store=False, stream=True)]
    last: Any = events[-1]
    assert (last.type, last.response.output_text) == ("response.completed", "Let me see.")
    assert [json.loads(item.arguments) for item in last.response.output[2:]] == [given for _, given in CALLS]
    results: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "a step"} for call in calls]
    after: Any = await responses.create(**asked, input=results, instructions="Be brief.", previous_response_id=whole.id)
    assert (after.output_text, after.previous_response_id) == ("It is a step of the ring.", whole.id)
    assert after.usage.input_tokens_details.cached_tokens >= whole.usage.input_tokens - 1, "all but the mark"
    cut: Any = await responses.create(model="gpt-5", input=PROMPT, max_output_tokens=3)
    assert (cut.status, cut.incomplete_details.reason, cut.usage.output_tokens) == (
        "incomplete",
        "max_output_tokens",
        3,
    )
    assert (await responses.retrieve(whole.id)).output == whole.output
    await responses.delete(whole.id)
    for name in (whole.id, last.response.id):
        with pytest.raises(openai().NotFoundError):
            await responses.retrieve(name)
    with pytest.raises(openai().NotFoundError):
        await responses.create(**asked, input="And?", previous_response_id=whole.id)
    with pytest.raises(openai().BadRequestError) as refused:
        await responses.create(**asked, input="one two " * 5000, stream=True)
    assert refused.value.code == "context_length_exceeded"


class Hop(pydantic.BaseModel):
    """The wanted form of an answer."""

    model_config = pydantic.ConfigDict(extra="forbid")

    via: Literal["wifi", "cable"]
    peers: Annotated[list[Literal["anna", "bert"]], pydantic.Field(max_length=2)]
    ms: Annotated[int, pydantic.Field(ge=0, le=9999)] | None


async def test_an_answer_has_the_shape_that_its_client_asks_for(served: Served) -> None:
    chat, responses = served.client.chat.completions, served.client.responses
    parsed = await chat.parse(model=served.model, max_tokens=300, messages=ASKED, response_format=Hop)
    assert isinstance(parsed.choices[0].message.parsed, Hop)
    shape = {"type": "json_schema", "json_schema": {"name": "o", "schema": {"enum": [{"a": 1}, {"a": 2}]}}}
    assert json.loads((await served.ask(response_format=shape)).choices[0].message.content)["a"] in (1, 2)
    response = await responses.parse(model=served.model, max_output_tokens=300, input=ASKED, text_format=Hop)
    assert isinstance(response.output_parsed, Hop)
    form = {"type": "json_schema", "schema": Hop.model_json_schema()}
    asked: Any = {"model": "", "max_tokens": 300, "messages": ASKED, "output_config": {"format": form}}
    said: Any = await served.anthropic.messages.create(**asked)
    assert Hop.model_validate_json(said.content[-1].text)
    with pytest.raises(openai().BadRequestError, match="can't be enforced: not"):
        await served.ask(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}})


async def test_tools_that_must_be_called_are_called_with_what_they_take(served: Served) -> None:
    schema = Hop.model_json_schema()
    functions = [{"name": name, "parameters": schema, "strict": True} for name in ("send", "höp")]
    asked: Any = {"max_tokens": 400, "tools": [{"type": "function", "function": each} for each in functions]}
    named = await served.ask(**asked, tool_choice={"type": "function", "function": {"name": "höp"}})
    either = await served.ask(**asked, tool_choice="required", parallel_tool_calls=False)
    for choice in (*named.choices, *either.choices):
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, choice.message.reasoning_content) == ("tool_calls", "I look it up.")
        assert Hop.model_validate_json(call.function.arguments)
    assert named.choices[0].message.tool_calls[0].function.name == "höp"
    assert [each.choices[0].message.content for each in (named, either)] == [None, None]
    word = {"type": "object", "properties": {"word": {"enum": ["ring"]}}, "required": ["word"]}
    strict = {"name": "look_up", "parameters": {**word, "additionalProperties": False}, "strict": True}
    asked["tools"] = [{"type": "function", "function": strict}]
    free = (await served.ask(**asked, parallel_tool_calls=False)).choices[0].message
    assert (free.content, free.tool_calls[0].function.arguments) == ("Let me see.", '{"word": "ring"}')
    tools: Any = [{"name": "send", "input_schema": schema}]
    for wanted in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "send"}):
        more: Any = {"model": "", "max_tokens": 400, "messages": ASKED, "tools": tools, "tool_choice": wanted}
        said: Any = await served.anthropic.messages.create(**more)
        thought, use = said.content
        assert (thought.type, use.name, said.stop_reason) == ("thinking", "send", "tool_use")
        assert Hop.model_validate(use.input)


@pytest.mark.promise("T9")
async def test_who_may_not_and_what_cannot_is_refused_in_words(served: Served) -> None:
    async def refused(**fields: Any) -> tuple[int, str | None]:
        with pytest.raises(openai().APIStatusError) as error:
            await served.ask(**fields)
        return error.value.status_code, error.value.code

    assert await refused(model="nonesuch") == (404, "model_not_found")
    assert await refused(temperature=9) == (400, None)
    assert await refused(messages=[{"role": "user", "content": "one two " * 5000}]) == (400, "context_length_exceeded")
    async with httpx2.AsyncClient() as stranger:
        for headers, path, status in (
            ({}, "models", 401),
            ({"Authorization": "Bearer other"}, "models", 401),
            ({"x-api-key": KEY}, "models", 200),
            ({"x-api-key": KEY, "Host": "evil.example:4720"}, "models", 403),
            ({"x-api-key": KEY}, "models/nonesuch", 404),
            ({"x-api-key": KEY}, "load", 404),
        ):
            assert (await stranger.get(f"{served.url}/{path}", headers=headers)).status_code == status
        assert (await stranger.get(served.url.replace("/v1", "/health"))).json() == {"status": "ok"}
        torn = await stranger.post(f"{served.url}/chat/completions", headers={"x-api-key": KEY}, content=b"[" * 9000)
        assert (torn.status_code, "error" in torn.json()) == (400, True)


async def test_a_mac_that_does_not_lead_gives_the_answers_of_the_one_that_does(served: Served) -> None:
    member, asked = served.member, {"logprobs": True, "top_logprobs": 2}
    own = await served.ask(**asked)
    led = await member.ask(**asked)
    assert led.choices == own.choices
    assert (led.usage.completion_tokens, led.model) == (TOKENS, served.model)
    said, streamed = "", list[Any]()
    async for chunk in await member.ask(stream=True, **asked):
        said += chunk.choices[0].delta.content or ""
        streamed += chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else []
    assert said == own.choices[0].message.content
    assert [(each.token, each.logprob) for each in streamed] == [
        (each.token, each.logprob) for each in own.choices[0].logprobs.content
    ]
    assert [model.id for model in (await member.client.models.list()).data] == [served.model]
    async with Watch(served.demo._home(1)) as watch:  # the pasted text names it
        await watch.until(lambda w: w.now.chat_model == served.model, 240, "Telling what answers")
    counted = [await each.anthropic.messages.count_tokens(model="", messages=ASKED) for each in (served, member)]
    assert counted[0] == counted[1]
    ids = Tokens.load(Path(served.demo.model)).encode([Message(role="user", content=PROMPT)], raw=True)
    echoed = await member.client.completions.create(model=served.model, prompt=ids, echo=True, max_tokens=1)
    assert echoed.choices[0].text.startswith(PROMPT)
    with pytest.raises(openai().BadRequestError) as refused:
        await member.ask(messages=[{"role": "user", "content": "one two " * 40_000}])
    assert refused.value.code == "context_length_exceeded"


async def test_a_person_at_a_mac_that_serves_chats_by_the_one_that_leads_and_takes_nothing_from_it(
    served: Served,
) -> None:
    head, seat = served.demo.head, served.demo.watches[1]
    await seat.until(lambda w: w.now.served is not None and w.now.chat_status == "ready", 240, "Serving")
    expected = await ask(head, PROMPT, TOKENS)
    slow = asyncio.ensure_future(served.ask(max_tokens=60))
    await head.until(lambda w: bool(w.now.running), 240, "Asking")
    for take in (seat.client.load(LoadRequest(model=served.demo.model)), seat.client.unload()):
        with pytest.raises(NodeError, match=r"studio leads"):
            await take
    told = await ask(seat, PROMPT, TOKENS)
    assert told.tokens == expected.tokens
    assert (await slow).usage.completion_tokens == 60
    assert head.now.plan_status == "ready"
    assert not [kept for kept in served.demo.homes[1].tokens.glob("*") if kept.stat().st_size]
    assert await served.demo.watches[1].client.unfinished() == []


async def test_whoever_is_answered_is_told_where_the_api_is_switched_off_and_what_other_macs_relay_goes_on(
    served: Served,
) -> None:
    head = served.demo.head
    stream, relayed = [await mac.ask(max_tokens=1000, stream=True) for mac in (served, served.member)]
    whole = asyncio.ensure_future(served.ask(max_tokens=1000))
    await head.until(lambda w: len(w.now.running) == 3, 240, "Asking")
    await head.client.stop_api()
    try:
        with pytest.raises(openai().APIError, match=r"^The API of this Mac was turned off\."):
            async for _ in stream:
                pass
        with pytest.raises(openai().InternalServerError, match="The API of this Mac was turned off"):
            await whole
        (left,) = head.now.running
        written, read = sum(isinstance(e, TokenEvent) and e.request_id == left for e in head.seen), 0
        async for _ in relayed:
            read += 1
            if read > written + 8:
                break
        await relayed.close()
        await until(lambda: not head.now.running)
    finally:
        await head.client.start_api()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", ["tests", "mbp"])
async def test_an_answer_ends_where_its_client_is_gone(served: Served, stream: bool, client: str) -> None:
    mac = served if client == "tests" else served.member
    asking = asyncio.ensure_future(mac.ask(stream=stream, max_tokens=3000))
    await served.demo.head.until(lambda w: any(row.client == client for row in w.now.batch.rows), 240, "Beginning")
    if stream:
        await (await asking).close()
    else:
        asking.cancel()
    await until(lambda: not served.demo.head.now.running)


async def test_many_at_a_time_some_of_whom_leave_are_told_what_each_is_told_alone(served: Served) -> None:
    crowd = Crowd(served.url, KEY, seed=1, leaving=0.3, most_tokens=6)
    await crowd.ask_alone()
    await crowd.ask_together(12, 1.0)
    await crowd.close()
    assert crowd.come["right"] >= 12 * 0.5
    assert not crowd.come.keys() - {"right", "left"}, crowd.wrong
    await until(lambda: not served.demo.head.now.running)


@pytest.mark.parametrize("streams", [True, False])
async def test_a_scenario_has_data_for_every_segment(served: Served, streams: bool) -> None:
    scenario = Scenario(name="small", providers=(2,), users=2, requests=4, concurrency=2, max_tokens=6, streams=streams)
    load = LoadLevel(rate=None if streams else 50.0, warm_up=1)
    told = await measured(scenario, load, [AskedModel(served.url, served.model, [KEY])])
    one = result(scenario, load, [], told)
    assert (one.succeeded, one.refused, one.problems) == (4, 0, ())
    unseen = set() if streams else {"ttft", RATE}
    assert {name: each.count for name, each in one.segments.items()} == dict.fromkeys(set(SEGMENTS) - unseen, 4)
    assert len(one.assertions) == 8


async def test_the_key_of_an_evaluation_is_gone_behind_it(served: Served) -> None:
    assert await directory_of(served.demo.head) == served.demo.model
    async with api_of(served.demo.head, together=2) as api:
        assert api.url == served.url
        client = served.client.with_options(api_key=api.key)
        assert [model.id for model in (await client.models.list()).data] == [api.model]
    with pytest.raises(openai().AuthenticationError):
        await client.models.list()


# ---- one after the other, the shared Macs end


async def test_a_stream_goes_on_when_a_mac_dies_and_says_nothing_twice(served: Served) -> None:
    demo, member = served.demo, served.member
    expected = (await served.ask(max_tokens=60)).choices[0].message.content
    said = ""
    async for chunk in await served.ask(max_tokens=60, stream=True):
        said += chunk.choices[0].delta.content or ""
        if said and psutil.pid_exists(demo.pid_of(2)) and demo._nodes[2].poll() is None:
            demo._nodes[2].kill()
    assert said == expected
    assert demo._nodes[2].poll() is not None
    # until then the other Mac names the one to ask
    await demo.head.until(
        lambda w: bool(w.now.plan and len(w.now.plan.stages) == 2) and w.now.plan_status == "ready", 240, "Going on"
    )
    await demo.head.until(lambda w: not w.now.recovery, 240, "Going on")
    await demo.watches[1].until(lambda w: bool(w.now.elsewhere), 240, "Being led")
    await relays(member)
    await told_of_its_end(member, 1)
    await demo.head.until(lambda w: bool(w.now.plan and len(w.now.plan.stages) == 1), 240, "Doing without it")
    await demo.head.until(lambda w: w.now.plan_status == "ready" and not w.now.recovery, 240, "Going on")
    await told_of_its_end(served, 0)


async def relays(mac: Served) -> None:
    """Wait until the Mac relays requests. The head's status may be late; until then it names the Mac to ask."""
    async with asyncio.timeout(240):
        while True:
            try:
                await mac.ask(max_tokens=1)
            except openai().InternalServerError as refused:
                if "leads" not in str(refused):
                    raise
                await asyncio.sleep(0.05)
            else:
                return


async def told_of_its_end(mac: Served, number: int) -> None:
    """A node is ended while clients read a stream, wait for a whole answer, or queue: each gets the reason."""
    stream = await mac.ask(max_tokens=3000, stream=True)
    await anext(aiter(stream))
    whole = [asyncio.ensure_future(mac.ask(max_tokens=3000)) for _ in range(2 * DEFAULT_ROWS)]
    head = mac.demo.head
    await head.until(lambda w: len(w.now.running) == DEFAULT_ROWS, 240, "Asking")
    mac.demo._nodes[number].terminate()
    with pytest.raises(openai().APIError, match=r"^The node of this Mac was ended\."):
        async for _ in stream:
            pass
    for refused in await asyncio.gather(*whole, return_exceptions=True):
        assert isinstance(refused, openai().InternalServerError)
        assert (refused.status_code, "The node of this Mac was ended." in str(refused)) == (503, True)
    await mac.close()


async def test_the_demo_serves_until_it_is_ended_and_who_reads_a_stream_is_told() -> None:
    port = free_port()
    eos = json.loads((DEMO_MODEL / "generation_config.json").read_text())["eos_token_id"]
    command = ("demo", "--serve", str(port), "--key", KEY, "--memory", "4", "--no-multicast")
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tui.cli.main", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert demo.stdout
        told = json.loads(await demo.stdout.readline())
        assert (await asyncio.to_thread(Path(told.pop("home")).stat)).st_mode & 0o777 == 0o700
        (node,), (home,) = told.pop("nodes"), told.pop("homes")
        assert (Path(home).name, psutil.Process(node).ppid()) == ("studio", demo.pid)
        url = f"http://127.0.0.1:{port}/v1"
        assert told == {"url": url, "key": KEY, "model": "macluster-demo", "urls": [url]}
        async with openai().AsyncOpenAI(base_url=told["url"], api_key=told["key"]) as client:
            assert [model.id for model in (await client.models.list()).data] == ["macluster-demo"]
            below = psutil.Process(demo.pid).children(recursive=True)
            endless: Any = {"max_tokens": 3000, "logit_bias": {eos: -100}, "stream": True}
            stream = await client.chat.completions.create(model="", messages=ASKED, **endless)
            await anext(aiter(stream))
            demo.terminate()
            with pytest.raises(openai().APIError, match=r"^The node of this Mac was ended\."):
                async for _ in stream:
                    pass
        assert await demo.wait() in (-signal.SIGTERM, 128 + signal.SIGTERM)
        await until(lambda: not any(process.is_running() for process in below))
    finally:
        with suppress(ProcessLookupError):
            os.kill(demo.pid, signal.SIGKILL)
