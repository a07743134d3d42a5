"""What widgets tell the screen; the screen or the app acts."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from core.errors import Problem
from core.events import RecoveryChoice
from core.requests import LoadRequest, PreviewRequest


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
    """The person wants this loaded; `wish.model` is a name of the list."""

    wish: LoadRequest


@dataclass
class ModelPointed(Message):
    """This is to be planned: the cursor is on the model and nobody has examined it yet, or something else about it was
    chosen; `wish.model` is a name of the list.
    """

    wish: PreviewRequest


@dataclass
class RecoveryChosen(Message):
    """What the person wants of a plan that lost a Mac."""

    choice: RecoveryChoice


@dataclass
class ProblemRead(Message):
    """The person has read the banner."""
