"""Messages that widgets and screens post; the screen or the app acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.message import Message

from core.events import RecoveryChoice


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
class RecoveryChosen(Message):
    """The person chose how to recover."""

    choice: RecoveryChoice


MacAction = Literal["details", "pair", "trust", "skip", "add", "forget"]


@dataclass
class MacAsked(Message):
    """Do something with that Mac; the device id is "" for none in particular."""

    device_id: str
    action: MacAction


@dataclass
class ProblemRead(Message):
    """The banner was dismissed."""
