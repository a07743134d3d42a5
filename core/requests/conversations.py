"""Saved conversations and sessions: requests and responses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.errors import Problem
from core.numbers import Moment, Positive, Rate, Seconds, Size
from core.requests.answers import AnswerOptions, Message, StopTexts
from core.requests.body import Body, Name, PathName
from core.sampling_options import Option

RandomId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$", max_length=32)]


class ChatOptions(AnswerOptions, frozen=True, kw_only=True):
    """Options for the answers of a conversation, as in `ChatRequest`."""

    stop: StopTexts = ()
    # system prompt, the first message
    system: Annotated[str, Option(label="System prompt", hint="instructions for the model")] = ""


class KeptTurn(Body, frozen=True, kw_only=True):
    """One message of a saved conversation. The figures are an answer's."""

    role: Literal["user", "assistant"]
    text: str
    at: Moment  # seconds since the epoch
    request_id: Name = ""
    prompt_tokens: Size = 0
    tokens: Size = 0
    last_at: Moment | None = None
    ttft_s: Seconds | None = None
    tokens_per_s: Rate | None = None
    why: str = ""  # why the answer ended, unless it simply ended
    is_valid: bool | None = None  # whether the answer has the requested shape
    back: Positive = 1  # distance to the message it follows; beyond the start: it follows none


class ConversationId(Body, frozen=True, kw_only=True):
    """Selects a saved conversation: 128 random bits, hex."""

    id: RandomId


class Conversation(ConversationId, frozen=True, kw_only=True):
    """A saved conversation, or a change of one. Times are seconds since the epoch."""

    title: Annotated[str, msgspec.Meta(max_length=200)]
    model: PathName = ""  # of the last answer
    created_at: Moment
    changed_at: Moment
    options: ChatOptions = ChatOptions()
    turns: tuple[KeptTurn, ...] = ()  # every message in order, including retries and edits
    newer: Size = 0  # messages after the last one shown
    draft: str = ""  # typed but not sent
    # of a change: the number of first messages that stay, before `turns`; and `changed_at` of what it changes
    keep: Size = 0
    since: Moment = 0.0

    @property
    def path(self) -> tuple[int, ...]:
        found, at = [], len(self.turns) - 1 - self.newer
        while at >= 0:
            found.append(at)
            at -= self.turns[at].back
        return tuple(reversed(found))

    @property
    def shown(self) -> tuple[KeptTurn, ...]:
        return tuple(msgspec.structs.replace(self.turns[at], back=1) for at in self.path)


class SearchText(Body, frozen=True, kw_only=True):
    """Selects conversations that contain this text in title, model or any message."""

    text: Annotated[str, msgspec.Meta(max_length=1000)]


class ConversationInfo(ConversationId, frozen=True, kw_only=True):
    """A saved conversation in a list."""

    title: str = ""
    model: str = ""
    created_at: float = 0.0
    changed_at: float = 0.0
    messages: int = 0  # number of messages shown
    tokens: int = 0  # of its answers
    size_bytes: int = 0
    ending: str = ""  # how the last message ended
    last_request: str = ""  # request id of the last message
    has_draft: bool = False
    problem: Problem | None = None  # why it can't be read


class SessionName(Body, frozen=True, kw_only=True):
    """Selects a saved session; a name has at most 32 characters."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"\A[^\0]*\Z")]


class SavedSession(Body, frozen=True, kw_only=True):
    """A saved session: a conversation with its caches."""

    name: str
    model: str = ""
    tokens: int = 0  # in the caches
    size_bytes: int = 0
    created_at: float = 0.0  # seconds since the epoch
    messages: tuple[Message, ...] = ()  # if requested
    problem: Problem | None = None  # why it can't be read
