"""What a node and its child that downloads say to each other: JSON lines."""

from __future__ import annotations

from core.errors import Problem
from core.events import Value


class FetchOrder(Value, frozen=True, kw_only=True):
    """What to download: a repository of the hub at a revision, into the hub cache in the folder `cache`."""

    repo: str
    revision: str
    cache: str


class Fetched(Value, frozen=True, kw_only=True):
    """So many bytes are there; `problem`: it ended so."""

    done: int = 0
    total: int = 0
    problem: Problem | None = None
