"""What widgets tell the screen; the screen or the app acts."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from core.errors import Problem


@dataclass
class Copied(Message):
    """The person copied `text`."""

    text: str


@dataclass
class Sent(Message):
    """The person sent `text` to the model."""

    text: str


@dataclass
class Noted(Message):
    """A key could not do its work; `text` says why."""

    text: str


@dataclass
class Failed(Message):
    """A command of a screen failed."""

    problem: Problem


@dataclass
class ModelChosen(Message):
    """The person wants the model with this name of the catalog."""

    name: str


@dataclass
class ModelPointed(Message):
    """The cursor is on the model with this name, which nobody has examined yet; it is to have `context` tokens."""

    name: str
    context: int


@dataclass
class ProblemRead(Message):
    """The person has read the banner."""
