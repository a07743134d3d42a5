"""Hub repository and commit of a model, stored in its folder, for downloading missing parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec

from core.errors import TransferError
from core.events import Value
from core.settings import Home
from core.trust.file_formats import JsonFile

ORIGIN_NAME: Final = ".hub"
MAX_ORIGIN_BYTES: Final = 1024

Repo = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")]
Commit = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{40}\Z")]


class HubOrigin(Value, frozen=True, kw_only=True):
    """One commit of one repository, owner/name."""

    repo: Repo
    commit: Commit


_FILE: Final = JsonFile[HubOrigin](Home.models, HubOrigin, TransferError, limit=MAX_ORIGIN_BYTES)


def read_origin(directory: Path) -> HubOrigin | None:
    return _FILE.try_to_read(directory / ORIGIN_NAME)


def write_origin(directory: Path, origin: HubOrigin) -> None:
    """Store the origin. Raises TransferError."""
    _FILE.write(directory / ORIGIN_NAME, origin)
