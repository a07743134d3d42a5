"""Messages that widgets and screens post; the screen or the app acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.message import Message

from core.errors import Problem
from core.events import RecoveryChoice
from core.requests.answers import Message as ChatMessage
from core.requests.plans import LoadRequest, PreviewRequest


class Seen(Message):
    """The first frame is on the screen."""


@dataclass
class Copied(Message):
    """`text` should be copied."""

    text: str


@dataclass
class Edited(Message):
    """The question with that number should be edited."""

    number: int


@dataclass
class Branched(Message):
    """Show the version `step` further at message `number` (0: the last one that has versions)."""

    number: int
    step: int


@dataclass
class Sent(Message):
    """The prompt was sent."""

    text: str


@dataclass
class Noted(Message):
    """A key did nothing; `text` says why."""

    text: str


@dataclass
class Failed(Message):
    """A command of a screen failed."""

    problem: Problem


class ModelsWanted(Message):
    """The list of models must be fetched again."""


@dataclass
class ModelChosen(Message):
    """Load this; `request.model` is a name of the list."""

    request: LoadRequest


@dataclass
class ModelPointed(Message):
    """Plan this: the cursor rests on a model that wasn't examined yet, or (`at_once`) an option changed."""

    request: PreviewRequest
    at_once: bool = False


@dataclass
class RecoveryChosen(Message):
    """The person chose how to recover."""

    choice: RecoveryChoice


@dataclass
class TakenUp(Message):
    """The messages of a session replace the conversation."""

    said: tuple[ChatMessage, ...]


MacAction = Literal["details", "pair", "trust", "skip", "add", "forget"]


@dataclass
class MacAsked(Message):
    """Do something with that Mac; the device id is "" for none in particular."""

    device_id: str
    action: MacAction


@dataclass
class ProblemRead(Message):
    """The banner was dismissed."""
