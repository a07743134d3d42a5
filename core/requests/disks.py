"""Download, copy and delete models on the Macs' disks: requests and responses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.numbers import Size
from core.requests.body import Body, PathName


class DownloadRequest(Body, frozen=True, kw_only=True):
    """Download a model of the hub to this Mac."""

    repo: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")]  # owner/name
    revision: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][\w.-]{0,99}\Z")] = "main"  # branch, tag or commit
    split: bool = False  # config and headers only; each Mac fetches its share of the weights when loading
    bytes_per_s: Size = 0  # limit; 0: none
    anyway: bool = False  # download all of it even if the disk seems too full: macOS frees purgeable space later


TransferChange = Literal["stop", "pause", "resume", "limit"]


class TransferOrder(Body, frozen=True, kw_only=True):
    """Stop, pause, resume or limit transfers. Bytes already written are kept."""

    what: TransferChange
    # receiving Macs, device ids; empty: all
    macs: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(max_length=64)] = ()
    bytes_per_s: Size = 0  # limit; 0: none


class CopyRequest(Body, frozen=True, kw_only=True):
    """Copy a model, or parts of its files, between paired Macs."""

    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    # receiving Macs, device ids; may include this one
    to: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=26)], ...], msgspec.Meta(min_length=1, max_length=64)]
    # (file name, first byte, end byte) each; empty: the whole model
    parts: tuple[tuple[Annotated[str, msgspec.Meta(max_length=255)], Size, Size], ...] = ()
    bytes_per_s: Size = 0  # limit per receiving Mac; 0: none


class DiskUse(Body, frozen=True, kw_only=True):
    """Disk use of a Mac."""

    mac: str  # device id
    fetched_bytes: Size = 0  # received for any model since its node started
    disk_bytes: Size = 0  # of the loaded model


class TrimRequest(Body, frozen=True, kw_only=True):
    """Delete bytes of a model that no plan needs from this Mac's disk."""

    model: PathName = ""  # "": all models
    go: bool = False  # False: only report them


class Trimmable(Body, frozen=True, kw_only=True):
    """Bytes of a model that no plan needs. Layers are half-open ranges; no `layers`: an abandoned download."""

    name: str
    path: str  # the model's folder
    nbytes: int  # on disk
    layers: tuple[tuple[int, int], ...] = ()  # to delete
    kept: tuple[tuple[int, int], ...] = ()  # to keep; empty: delete everything
    only_here: tuple[tuple[int, int], ...] = ()  # part of `layers` that no other linked Mac has, nor the hub
