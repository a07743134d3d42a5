"""What OpenAI's clients ask, as requests of ours, and what they are answered. Nothing here waits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.errors import BadModel, Busy, ContextExceeded, NotLoaded, NotPaired, UsageError
from core.events import RequestDone, TokenEvent
from core.node.public_api.openai_chat import ChatCompletion, TextCompletion
from core.node.public_api.openai_replies import Choice, Reply, error_body, status, usage
from core.requests import DEFAULT_MAX_TOKENS, ChatRequest, Message
from core.sampling_options import Sampling

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
REPLY = Reply(id="chatcmpl-1", model="tiny", created=7, kind="chat")


def chat(**fields: Any) -> ChatRequest:
    return msgspec.convert({**HELLO, **fields}, ChatCompletion).request()


def test_a_conversation_is_asked_for_as_it_stands_and_nothing_of_it_is_kept() -> None:
    turns = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "is it?"}]},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "unknown": 3},
    ]
    said = chat(messages=turns, stop="END", max_completion_tokens=9, unknown_field={"a": 1})
    assert said == ChatRequest(
        messages=(
            Message(role="system", content="Be brief."),
            Message(role="user", content="Who is it?"),
            Message(role="assistant", content=""),
        ),
        stop=("END",),
        max_tokens=9,
        keep=False,
    )
    assert chat().max_tokens == DEFAULT_MAX_TOKENS
    raw = msgspec.convert({"prompt": "a hop", "logprobs": 2, "max_tokens": 4}, TextCompletion).request()
    assert (raw.raw, raw.messages[0].content, raw.sampling.logprobs) == (True, "a hop", 2)


def test_how_tokens_are_chosen_goes_all_the_way() -> None:
    asked = {
        "temperature": 0.5,
        "top_p": 1,
        "top_k": 4,
        "min_p": 0.1,
        "seed": 3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0,
        "repetition_penalty": 1.5,
        "logit_bias": {"7": -2},
        "logprobs": True,
        "top_logprobs": 2,
    }
    assert chat(**asked).sampling == Sampling(
        temperature=0.5,
        top_k=4,
        min_p=0.1,
        seed=3,
        presence_penalty=0.5,
        repetition_penalty=1.5,
        logit_bias={7: -2.0},
        logprobs=2,
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tools": [{"type": "function"}]}, "tools: this API has none yet"),
        ({"functions": [{}]}, "functions: this API has none yet"),
        ({"response_format": {"type": "json_object"}}, "response_format: only text"),
        ({"messages": [{"role": "tool", "content": "3"}]}, "the role 'tool' cannot be answered"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url cannot be read"),
        ({"temperature": 9}, "Temperature must be at most 5"),
        ({"logit_bias": {"x": 1}}, "token ids, whole numbers"),
        ({"stop": ["x"] * 17}, "at most 16"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        chat(**fields)
    assert said in refused.value.what


def ended(**figures: Any) -> RequestDone:
    return RequestDone(request_id="r", finish_reason="length", prompt_tokens=5, text="!", **figures)


def test_a_stream_says_what_the_whole_body_says() -> None:
    tokens = [TokenEvent(request_id="r", index=n, token=n, text=text, logprob=-0.5) for n, text in enumerate("ab")]
    done = ended(tokens=2, reused_tokens=4)
    choice = Choice(0, tokens, done)
    (whole,) = REPLY.whole([choice])["choices"]
    assert (whole["message"]["content"], whole["finish_reason"]) == ("ab!", "length")
    events: list[TokenEvent | RequestDone] = [*tokens, done]
    pieces = [REPLY.beginning(0), *(REPLY.piece(0, each, logprobs=True) for each in events)]
    deltas = [piece["choices"][0] for piece in pieces]
    assert "".join(delta["delta"]["content"] for delta in deltas) == "ab!"
    assert [delta["finish_reason"] for delta in deltas] == [None, None, None, "length"]
    told = [delta["logprobs"]["content"][0]["token"] for delta in deltas if delta["logprobs"]]
    assert told == ["a", "b"]
    assert deltas[0]["delta"]["role"] == "assistant"
    assert usage([choice, Choice(1, [], ended(tokens=3))]) == {
        "prompt_tokens": 5,
        "completion_tokens": 5,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


@pytest.mark.parametrize(
    ("error", "number", "code"),
    [
        (UsageError("no"), 400, None),
        (ContextExceeded("long"), 400, "context_length_exceeded"),
        (Busy("full"), 429, "rate_limit_exceeded"),
        (NotLoaded("none"), 503, None),
        (NotPaired("mini"), 503, None),
        (BadModel("torn"), 500, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_says_whether_it_is_worth_asking_again(error: Any, number: int, code: str | None) -> None:
    assert (status(error), error_body(error.problem)["error"]["code"]) == (number, code)
