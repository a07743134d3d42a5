"""Messages between a node and its download child."""

from __future__ import annotations

from core.errors import Problem
from core.events import Value
from core.models.files.block_map import FileFacts
from core.models.files.hub_origin import HubOrigin
from core.models.files.parts import Part
from core.numbers import Moment, Size


class FetchOrder(Value, frozen=True, kw_only=True, tag="FetchOrder"):
    """Download a repository at a revision into the hub cache `cache`."""

    repo: str
    revision: str
    cache: str
    anyway: bool = False  # even if the disk seems too full


class BeginOrder(Value, frozen=True, kw_only=True, tag="BeginOrder"):
    """Download the settings of a model and the headers of its weights into a new folder inside `below`."""

    repo: str
    revision: str
    below: str


class PartsOrder(Value, frozen=True, kw_only=True, tag="PartsOrder"):
    """Download `parts` of a model of `files` into a folder, which may have some of them."""

    folder: str
    files: dict[str, FileFacts]
    origin: HubOrigin
    parts: tuple[Part, ...]


class LimitOrder(Value, frozen=True, kw_only=True):
    """Limit the rate from now on; 0: no limit."""

    bytes_per_s: Size


AnyOrder = FetchOrder | BeginOrder | PartsOrder


class Fetched(Value, frozen=True, kw_only=True):
    """Progress of a download."""

    done: int = 0  # bytes
    total: int = 0  # bytes
    checking: bool = False  # hashes are being compared
    waits_until: Moment = 0.0  # the hub takes no request before; then the rest says nothing
    problem: Problem | None = None  # why the download ended
    place: str = ""  # folder made for a BeginOrder
