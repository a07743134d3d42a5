"""What comes to the disks of the Macs and what goes from them: commands and what they answer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.numbers import Size
from core.requests.body import Body, PathName


class DownloadRequest(Body, frozen=True, kw_only=True):
    """A model of the hub, "owner/name", for this Mac's disk; `revision` is a branch, a tag or a commit. `split`: only
    its settings and headers, so that it can be planned; of its weights each Mac fetches what it holds in a plan.
    `bytes_per_s`: no quicker than that, 0 for as quick as it goes.
    """

    repo: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")]
    revision: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,99}\Z")] = "main"
    split: bool = False
    bytes_per_s: Size = 0


TransferChange = Literal["stop", "pause", "resume", "limit"]


class TransferOrder(Body, frozen=True, kw_only=True):
    """What is to become of what is on its way to the disks of `macs`, device ids, or to all where there are none: it
    ends, pauses, goes on, or comes no quicker than at `bytes_per_s`, 0 for as many as come. What is there is kept.
    """

    what: TransferChange
    macs: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(max_length=64)] = ()
    bytes_per_s: Size = 0


class CopyRequest(Body, frozen=True, kw_only=True):
    """Copy a model, by its fingerprint, to the disks of the paired Macs `to` (device ids; this one may be among them),
    from one that has it; or only the `parts` of its files, each (name, first byte, byte behind the last), with its
    settings. What comes from Macs comes to each no quicker than `bytes_per_s`, 0 for as quick as it goes.
    """

    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    to: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(min_length=1, max_length=64)]
    parts: tuple[tuple[Annotated[str, msgspec.Meta(max_length=255)], Size, Size], ...] = ()
    bytes_per_s: Size = 0


class DiskUse(Body, frozen=True, kw_only=True):
    """Of the loaded model, `disk_bytes` lie on the disk of the Mac `mac`, a device id; `fetched_bytes` of whichever
    models have come there since this Mac's node has started, as far as it wanted that.
    """

    mac: str
    fetched_bytes: Size = 0
    disk_bytes: Size = 0


class TrimRequest(Body, frozen=True, kw_only=True):
    """Of which `model` no plan's bytes are to be let go of on this Mac's disk, of all where there is none; without `go`
    it is only told what they are.
    """

    model: PathName = ""
    go: bool = False


class Trimmable(Body, frozen=True, kw_only=True):
    """What of a model in the folder `path` no plan needs: `nbytes` of the disk. `layers` go and `kept` stay, both as
    half-open ranges; without `kept` all goes. `only_here`: those of `layers` that no other linked Mac has, nor the hub.
    Without any layers it was begun and left.
    """

    name: str
    path: str
    nbytes: int
    layers: tuple[tuple[int, int], ...] = ()
    kept: tuple[tuple[int, int], ...] = ()
    only_here: tuple[tuple[int, int], ...] = ()
