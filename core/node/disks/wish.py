"""What is to come to this Mac's disk, as the file remembers it that keeps a pause until the next node."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from core.errors import TrustError
from core.events import Transfer, Value
from core.requests.disks import DownloadRequest
from core.trust.files import read_private, write_private


class QueuedTransfer(Value, frozen=True, kw_only=True):
    """A `download`, or else the copy of the model that `first` names: of `parts` of its files, each (first byte, byte
    behind the last), with its settings, or of all where there are none. `first`: how far it is as it begins, and its
    limit. `asked_by`: the Mac that wants it, "" for this one.
    """

    first: Transfer
    download: DownloadRequest | None = None
    parts: dict[str, tuple[tuple[int, int], ...]] = msgspec.field(default_factory=dict)
    asked_by: str = ""


def read_paused(file: Path) -> QueuedTransfer | None:
    """What `keep_paused` wrote. A file that is damaged, or not this user's alone, counts as none."""
    try:
        return msgspec.json.decode(read_private(file, TrustError), type=QueuedTransfer)
    except (TrustError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def keep_paused(file: Path, wish: QueuedTransfer) -> None:
    """For the next node, 0600."""
    with suppress(TrustError):  # on a full disk the pause ends with this node
        write_private(file, msgspec.json.encode(wish), TrustError)


def forget_paused(file: Path) -> None:
    """Nothing is paused."""
    with suppress(OSError):
        file.unlink()
