"""Completions: prompts in each of their forms, and the replies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.answer_parts import TextPart
from core.constraint import Constraint
from core.errors import UsageError
from core.events import PromptLogprobs, RequestDone, TokenEvent, TokenLogprobs
from core.node.answers.answer_stream import Said
from core.node.public_api.completions_replies import CompletionReply, TextChoice
from core.node.public_api.completions_request import TextCompletion
from core.requests.answers import ChatRequest

REPLY = CompletionReply(id="cmpl-1", model="tiny", created=7, n=2)


def asked(**fields: Any) -> list[ChatRequest]:
    body = msgspec.json.decode(msgspec.json.encode(fields), type=TextCompletion)
    return body.requests(body.prompts())


def test_prompts_are_texts_or_token_ids_and_each_is_asked_for_n_times() -> None:
    (plain,) = asked(prompt="a hop", logprobs=2, max_tokens=4)
    assert (plain.raw, plain.messages[0].content, plain.prompt_tokens) == (True, "a hop", ())
    assert (plain.sampling.logprobs, plain.max_tokens, plain.keep) == (2, 4, False)
    assert (plain.prompt_logprobs, asked(prompt="a", logprobs=0, echo=True)[0].prompt_logprobs) == (False, True)
    assert asked(prompt="a", n=2, best_of=2, suffix="") == asked(prompt="a", n=2), "all of them are the best"
    assert [each.messages[0].content for each in asked(prompt=["a", "b"], n=2)] == ["a", "a", "b", "b"]
    shape = {"type": "json_schema", "json_schema": {"schema": {"type": "null"}}}
    (shaped,) = asked(prompt="a", response_format=shape)
    assert (shaped.raw, shaped.constraint) == (True, Constraint(kind="json_schema", source='{"type":"null"}'))
    assert [each.prompt_tokens for each in asked(prompt=[1, 2])] == [(1, 2)]
    assert [each.prompt_tokens for each in asked(prompt=[[1, 2], [3]])] == [(1, 2), (3,)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt": 3}, "prompt must be text"),
        ({"prompt": []}, "prompt must hold 1 to 128"),
        ({"prompt": [[1], []]}, "prompt must be text"),
        ({"prompt": [-1]}, "prompt must be text"),
        ({"prompt": ["a", 1]}, "prompt must be text"),
        ({"prompt": ["a"] * 129}, "prompt must hold 1 to 128"),
        ({"prompt": "a", "echo": True, "logprobs": 1, "stream": True}, "logprobs with echo can't be streamed"),
        ({"prompt": "a", "response_format": {"type": "xml"}}, "response_format: type 'xml' is not supported"),
        ({"prompt": "a", "suffix": "b"}, "suffix is not supported"),
        ({"prompt": "a", "best_of": 2}, "best_of is not supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked(**fields)
    assert said in refused.value.what


def test_what_is_echoed_stands_before_the_answer_whole_and_streamed() -> None:
    choices = [TextChoice(index, echoed="a hop") for index in range(4)]
    told = [REPLY.beginning(choice) for choice in choices]
    for choice in choices:
        tokens = [TokenEvent(request_id="r", index=n, token=n, text=text, logprob=-0.5) for n, text in enumerate("!?")]
        done = RequestDone(request_id="r", finish_reason="stop", prompt_tokens=5 + choice.index, tokens=2)
        said: list[Said] = [tokens[0], TextPart("!"), tokens[1], TextPart("?"), done]
        for each in said:
            choice.take(each)
            told.append(REPLY.piece(choice, each))
    whole = REPLY.whole(choices)
    assert [choice["text"] for choice in whole["choices"]] == ["a hop!?"] * 4
    assert whole["choices"][0]["logprobs"]["text_offset"] == [5, 6]
    assert whole["usage"]["prompt_tokens"] == 5 + 7, "two of them share a prompt"
    streamed = [piece["choices"][0] for piece in told if piece]
    for choice in choices:
        own = [each for each in streamed if each["index"] == choice.index]
        assert "".join(each["text"] for each in own) == "a hop!?"
        assert [offset for each in own if each["logprobs"] for offset in each["logprobs"]["text_offset"]] == [5, 6]
        assert [each["finish_reason"] for each in own][-1] == "stop"


def test_tokens_and_alternatives_are_texts_with_their_offsets() -> None:
    choice = TextChoice(0, echoed="a hop")
    scored = TokenLogprobs(token=5, logprob=-1.0, top=((6, -0.5), (5, -1.0)), names=(" hop", " ring", " hop"))
    choice.take(PromptLogprobs(request_id="r", start=1, tokens=(scored,)))
    choice.take(
        TokenEvent(request_id="r", index=0, token=7, text=" on", logprob=-0.2, top=((7, -0.2),), names=(" on",))
    )
    choice.take(TextPart(" on"))
    choice.take(RequestDone(request_id="r", finish_reason="length", prompt_tokens=2, tokens=1))
    (told,) = REPLY.whole([choice])["choices"]
    assert told["text"] == "a hop on"
    assert told["logprobs"] == {
        "tokens": ["a", " hop", " on"],
        "token_logprobs": [0.0, -1.0, -0.2],
        "top_logprobs": [{}, {" ring": -0.5, " hop": -1.0}, {" on": -0.2}],
        "text_offset": [0, 1, 5],
    }


def test_the_prompt_alone_can_be_asked_for() -> None:
    (request,) = asked(prompt="a hop", echo=True, logprobs=1, max_tokens=0)
    assert request.max_tokens == 1, "a model writes at least one"
    choice = TextChoice(0, echoed="a hop", is_answered=False)
    scored = TokenLogprobs(token=5, logprob=-1.0, names=(" hop",))
    done = RequestDone(request_id="r", finish_reason="stop", prompt_tokens=2, tokens=1)
    token = TokenEvent(request_id="r", index=0, token=7, text=" on", logprob=-0.2)
    said: list[Said] = [PromptLogprobs(request_id="r", start=1, tokens=(scored,)), token, TextPart(" on"), done]
    streamed = []
    for each in said:
        choice.take(each)
        streamed.append(REPLY.piece(choice, each))
    assert [piece["choices"][0]["text"] for piece in streamed if piece] == [""]
    whole = REPLY.whole([choice])
    assert (whole["choices"][0]["text"], whole["choices"][0]["finish_reason"]) == ("a hop", "length")
    assert whole["choices"][0]["logprobs"]["tokens"] == ["a", " hop"]
    assert whole["usage"]["completion_tokens"] == 0
