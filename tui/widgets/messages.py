"""What widgets tell the screen; the screen or the app acts."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from core.errors import Problem
from core.events import RecoveryChoice, Topology


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
    """The person wants the model with this name of the catalog, in a `topology` if one was chosen."""

    name: str
    topology: Topology | None = None


@dataclass
class ModelPointed(Message):
    """The model with this name is to be planned for `context` tokens: the cursor is on it and nobody has examined it
    yet, or another `topology` was chosen.
    """

    name: str
    context: int
    topology: Topology | None = None


@dataclass
class RecoveryChosen(Message):
    """What the person wants of a plan that lost a Mac."""

    choice: RecoveryChoice


@dataclass
class ProblemRead(Message):
    """The person has read the banner."""
