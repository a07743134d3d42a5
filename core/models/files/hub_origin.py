"""Hub repository and commit of a model, stored in its folder, for downloading missing parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import msgspec

from core.errors import TransferError
from core.events import Value
from core.trust.private_files import write_private

ORIGIN_NAME: Final = ".hub"
MAX_ORIGIN_BYTES: Final = 1024

Repo = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")]
Commit = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{40}\Z")]


class HubOrigin(Value, frozen=True, kw_only=True):
    """One commit of one repository, owner/name."""

    repo: Repo
    commit: Commit


def read_origin(directory: Path) -> HubOrigin | None:
    """The origin stored in a model folder, if any."""
    try:
        fd = os.open(directory / ORIGIN_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            return msgspec.json.decode(file.read(MAX_ORIGIN_BYTES), type=HubOrigin)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_origin(directory: Path, origin: HubOrigin) -> None:
    """Store the origin. Raises TransferError."""
    write_private(directory / ORIGIN_NAME, msgspec.json.encode(origin), TransferError)
