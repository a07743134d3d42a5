"""Chat completions and completions as OpenAI's clients ask for them, as requests of ours; nothing here waits.

Unknown fields are ignored. What cannot be honoured is refused by the name of its field: an answer that only looks as
asked for is worse than none.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from core.errors import UsageError
from core.field_errors import plain
from core.requests import DEFAULT_MAX_TOKENS, ChatRequest, Message
from core.sampling_options import MAX_LOGPROBS, Sampling

MOST_CHOICES: Final = 8

_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
_ROLES: Final[dict[str, Literal["system", "user", "assistant"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class Part(msgspec.Struct, frozen=True):
    """A part of a message; only text can be answered."""

    type: str
    text: str = ""


class ChatTurn(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: str
    content: str | tuple[Part, ...] | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """Which shape the answer is to have."""

    type: str = "text"


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream tells besides the answer."""

    include_usage: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds of completions say alike."""

    model: str = ""
    max_tokens: _Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: str | tuple[str, ...] | None = None
    seed: int | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] = 1
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()


class ChatCompletion(Asked, frozen=True, kw_only=True):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[tuple[ChatTurn, ...], msgspec.Meta(min_length=1)]
    max_completion_tokens: _Count | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] = 0
    tools: tuple[Any, ...] = ()
    functions: tuple[Any, ...] = ()
    tool_choice: Any = None
    response_format: ResponseFormat = ResponseFormat()

    def request(self) -> ChatRequest:
        """What the cluster is asked for, for each choice. Raises UsageError."""
        if self.tools and self.tool_choice != "none":
            raise UsageError("tools: this API has none yet.", "Ask without them.")
        if self.functions:
            raise UsageError("functions: this API has none yet.", "Ask without them.")
        if self.response_format.type != "text":
            raise UsageError("response_format: only text can be answered yet.", "Ask for text.")
        wanted = self.top_logprobs if self.logprobs else None
        return _request(self, tuple(map(_message, self.messages)), self.max_completion_tokens, logprobs=wanted)


class TextCompletion(Asked, frozen=True, kw_only=True):
    """Body of `POST /v1/completions`."""

    prompt: str
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None

    def request(self) -> ChatRequest:
        """What the cluster is asked for, for each choice. Raises UsageError."""
        for name, is_asked in (("suffix", self.suffix), ("best_of", (self.best_of or 1) > 1), ("echo", self.echo)):
            if is_asked:
                raise UsageError(f"{name}: this API has none yet.", "Ask without it.")
        said = (Message(role="user", content=self.prompt),)
        return _request(self, said, None, logprobs=self.logprobs, raw=True)


def _message(turn: ChatTurn) -> Message:
    role = _ROLES.get(turn.role)
    if role is None:
        raise UsageError(f"messages: the role {turn.role!r} cannot be answered.", f"Use one of {', '.join(_ROLES)}.")
    if isinstance(turn.content, str) or turn.content is None:
        return Message(role=role, content=turn.content or "")
    for part in turn.content:
        if part.type not in ("text", "input_text"):
            raise UsageError(f"messages: {part.type} cannot be read by this model.", "Send text.")
    return Message(role=role, content="".join(part.text for part in turn.content))


def _request(
    asked: Asked, messages: tuple[Message, ...], most: int | None, *, logprobs: int | None, raw: bool = False
) -> ChatRequest:
    stop = (asked.stop,) if isinstance(asked.stop, str) else asked.stop or ()
    sampling = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "min_p": asked.min_p,
        "seed": asked.seed,
        "presence_penalty": asked.presence_penalty or None,
        "frequency_penalty": asked.frequency_penalty or None,
        "repetition_penalty": asked.repetition_penalty,
        "logit_bias": _bias(asked.logit_bias),
        "logprobs": logprobs,
    }
    given = {name: value for name, value in sampling.items() if value is not None}
    if given.get("top_p") == 1:
        given["top_p"] = 0.0  # both cut nothing off
    try:
        chosen = msgspec.convert(given, Sampling)
        return msgspec.convert(
            {
                "messages": msgspec.to_builtins(messages),
                "sampling": msgspec.to_builtins(chosen),
                "max_tokens": most or asked.max_tokens or DEFAULT_MAX_TOKENS,
                "stop": stop,
                "raw": raw,
                "keep": False,
            },
            ChatRequest,
            str_keys=True,
        )
    except msgspec.ValidationError as error:
        told = plain(error)
        raise UsageError(f"{told[0].upper()}{told[1:]}.") from error


def _bias(given: dict[str, float] | None) -> dict[int, float] | None:
    try:
        return {int(token): value for token, value in given.items()} if given else None
    except ValueError as error:
        raise UsageError("logit_bias: its keys are token ids, whole numbers.") from error
