"""Conversations that are kept: how their answers are asked for, and what was said."""

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
    """How the answers of a conversation are asked for, as in `ChatRequest`; `system` is its first message, if any."""

    stop: StopTexts = ()
    system: Annotated[str, Option(label="System prompt", hint="what the model reads first")] = ""


class KeptTurn(Body, frozen=True, kw_only=True):
    """One message of a conversation that is kept, said at `at`, seconds since the epoch. Of an answer also its figures,
    and `why` it ended, where it did not simply end. `is_valid`: whether it has the shape that it was to have. It
    follows the message that is so many places `back`; before the first place is nothing.
    """

    role: Literal["user", "assistant"]
    text: str
    at: Moment
    request_id: Name = ""
    prompt_tokens: Size = 0
    tokens: Size = 0
    last_at: Moment | None = None
    ttft_s: Seconds | None = None
    tokens_per_s: Rate | None = None
    why: str = ""
    is_valid: bool | None = None
    back: Positive = 1


class ConversationId(Body, frozen=True, kw_only=True):
    """Which kept conversation: 128 random bits, hex."""

    id: RandomId


class ConversationTitle(ConversationId, frozen=True, kw_only=True):
    """Another title for a kept conversation."""

    title: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Conversation(ConversationId, frozen=True, kw_only=True):
    """A conversation as it is kept: `model` gave its last answer; times are seconds since the epoch. `turns`: all that
    was said, in its order, also what was asked or answered anew; behind the last one that is shown are `newer` ones.
    `draft`: what was typed and not asked yet.
    """

    title: Annotated[str, msgspec.Meta(max_length=200)]
    model: PathName = ""
    created_at: Moment
    changed_at: Moment
    options: ChatOptions = ChatOptions()
    turns: tuple[KeptTurn, ...] = ()
    newer: Size = 0
    draft: str = ""

    @property
    def path(self) -> tuple[int, ...]:
        """The places of the turns that are shown, the first one first."""
        found, at = [], len(self.turns) - 1 - self.newer
        while at >= 0:
            found.append(at)
            at -= self.turns[at].back
        return tuple(reversed(found))

    @property
    def shown(self) -> tuple[KeptTurn, ...]:
        """The turns that are shown: one after the other."""
        return tuple(msgspec.structs.replace(self.turns[at], back=1) for at in self.path)


class SearchText(Body, frozen=True, kw_only=True):
    """Which conversations are meant: those that hold this in their title, their model or any message."""

    text: Annotated[str, msgspec.Meta(max_length=1000)]


class ConversationInfo(ConversationId, frozen=True, kw_only=True):
    """A kept conversation as a list shows it: `messages` that are shown of it, `tokens` of its answers, `ending` of its
    last message, which belongs to `last_request`. `problem`: why it cannot be read.
    """

    title: str = ""
    model: str = ""
    created_at: float = 0.0
    changed_at: float = 0.0
    messages: int = 0
    tokens: int = 0
    size_bytes: int = 0
    ending: str = ""
    last_request: str = ""
    has_draft: bool = False
    problem: Problem | None = None


class SessionName(Body, frozen=True, kw_only=True):
    """Which saved conversation; a name has at most 32 characters."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"\A[^\0]*\Z")]


class SavedSession(Body, frozen=True, kw_only=True):
    """A conversation on disk: `tokens` of it are held, in a file of `size_bytes`, since `created_at`, seconds since the
    epoch. `messages`: its words, where they were asked for. `problem`: why it cannot be read.
    """

    name: str
    model: str = ""
    tokens: int = 0
    size_bytes: int = 0
    created_at: float = 0.0
    messages: tuple[Message, ...] = ()
    problem: Problem | None = None
