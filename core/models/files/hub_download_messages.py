"""What a node and its child that downloads say to each other: JSON lines."""

from __future__ import annotations

from core.errors import Problem
from core.events import Value
from core.models.files.hub_origin import HubOrigin
from core.models.files.parts import Part
from core.numbers import Size


class FetchOrder(Value, frozen=True, kw_only=True, tag=True):
    """What to download: a repository of the hub at a revision, into the hub cache in the folder `cache`."""

    repo: str
    revision: str
    cache: str


class BeginOrder(Value, frozen=True, kw_only=True, tag=True):
    """Bring what tells of a model, its settings and the headers of its weights, into a folder in the folder `below`."""

    repo: str
    revision: str
    below: str


class PartsOrder(Value, frozen=True, kw_only=True, tag=True):
    """Bring `parts` of a model to the folder in which it was begun."""

    folder: str
    origin: HubOrigin
    parts: tuple[Part, ...]


class LimitOrder(Value, frozen=True, kw_only=True):
    """No more than so many bytes a second from now on, 0 for as many as come."""

    bytes_per_s: Size


AnyOrder = FetchOrder | BeginOrder | PartsOrder


class Fetched(Value, frozen=True, kw_only=True):
    """So many bytes are there; `checking`: hashes are compared; `problem`: it ended so. `place`: the folder in which a
    model was begun.
    """

    done: int = 0
    total: int = 0
    checking: bool = False
    problem: Problem | None = None
    place: str = ""
