"""What widgets and screens ask for; the screen or the app acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.message import Message

from core.errors import Problem
from core.events import RecoveryChoice
from core.requests.answers import Message as Said
from core.requests.plans import LoadRequest, PreviewRequest


class Seen(Message):
    """The first frame is on the screen."""


@dataclass
class Copied(Message):
    """The person copied `text`."""

    text: str


@dataclass
class Edited(Message):
    """The person wants to change the question of that number."""

    number: int


@dataclass
class Branched(Message):
    """The person wants the branch `step` further at the message of that number, 0 for the last one that has any."""

    number: int
    step: int


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


class ModelsWanted(Message):
    """Other models are to be listed: what is there is to be asked anew."""


@dataclass
class ModelChosen(Message):
    """The person wants this loaded; `request.model` is a name of the list."""

    request: LoadRequest


@dataclass
class ModelPointed(Message):
    """This is to be planned: the cursor is on the model and nobody has examined it yet, or, `at_once`, something else
    about it was chosen; `request.model` is a name of the list.
    """

    request: PreviewRequest
    at_once: bool = False


@dataclass
class RecoveryChosen(Message):
    """What the person wants of a plan that lost a Mac."""

    choice: RecoveryChoice


@dataclass
class TakenUp(Message):
    """A kept conversation takes the place of the one before."""

    said: tuple[Said, ...]


MacAction = Literal["details", "pair", "trust", "skip", "add", "forget"]


@dataclass
class MacAsked(Message):
    """The person wants this of the Mac with that device id, "" where it is none in particular."""

    device_id: str
    action: MacAction


@dataclass
class ProblemRead(Message):
    """The person has read the banner."""
