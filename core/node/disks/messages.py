"""Messages between nodes about models on their disks: inventory and copies."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from core.errors import Problem
from core.events import Transfer
from core.link.frames import FrameType
from core.models.files.block_map import Sha256
from core.models.files.hub_origin import HubOrigin
from core.node.base.node_message import UNLIMITED, FileName, ModelName, NodeMessage, Port
from core.numbers import Positive, Size
from core.requests.disks import TransferChange

MAX_HELD: Final = 48
MAX_BROKEN: Final = 32
MAX_MODEL_FILES: Final = 300
MAX_PARTS: Final = 1500
MAX_RANGES: Final = 12

FilePieces = Annotated[tuple[tuple[Size, Size], ...], msgspec.Meta(max_length=MAX_PARTS)]


class HeldModel(msgspec.Struct, frozen=True, kw_only=True):
    """A usable model on the sender's disk, complete or partial."""

    name: ModelName
    fingerprint: Sha256
    model_type: Annotated[str, msgspec.Meta(max_length=64)]
    layers: Annotated[int, msgspec.Meta(ge=1, lt=1 << 16)]
    total_bytes: Size
    quantization: Annotated[str, msgspec.Meta(max_length=32)]
    context_max: Size
    missing_bytes: Size = 0  # not on that disk
    disk_bytes: Size = 0  # used on that disk
    layers_here: Annotated[tuple[tuple[Size, Size], ...], msgspec.Meta(max_length=MAX_RANGES)] = ()  # half-open ranges
    hub: HubOrigin | None = None  # source of missing parts


class InventoryMessage(NodeMessage, frozen=True, kw_only=True):
    """Base of messages about the models of a Mac."""

    FRAME: ClassVar = FrameType.MODEL_INVENTORY


class Holds(InventoryMessage, frozen=True, kw_only=True, tag="Holds"):
    """Models on the sender's disk, sent when two Macs link and after changes."""

    models: Annotated[tuple[HeldModel, ...], msgspec.Meta(max_length=MAX_HELD)]
    broken: Annotated[tuple[ModelName, ...], msgspec.Meta(max_length=MAX_BROKEN)] = ()  # names of unusable models
    answers: Size = 0  # number of the HoldsRequest, 0 without one


class HoldsRequest(InventoryMessage, frozen=True, kw_only=True, tag="HoldsRequest"):
    """Requests a new scan of the receiver's disk, and a Holds."""

    number: Positive = 1


class CopyMessage(NodeMessage, frozen=True, kw_only=True):
    """Base of messages about copying models."""

    FRAME: ClassVar = FrameType.COPY
    RATE: ClassVar = UNLIMITED


class FalseFile(CopyMessage, frozen=True, kw_only=True, tag="FalseFile"):
    """Reports that the receiver's partial file differs from the hub's hash and must be deleted."""

    fingerprint: Sha256
    name: FileName


class BytesRequest(CopyMessage, frozen=True, kw_only=True, tag="BytesRequest"):
    """Requests a separate link for the files of a model."""

    number: Size  # the requester's
    fingerprint: Sha256


class BytesReady(CopyMessage, frozen=True, kw_only=True, tag="BytesReady"):
    """Response to a BytesRequest: the port to dial, or why it failed."""

    number: Size
    port: Port | None = None
    problem: Problem | None = None


class PeerCopyRequest(CopyMessage, frozen=True, kw_only=True, tag="PeerCopyRequest"):
    """Requests the receiver to copy a model from the sender to its disk."""

    fingerprint: Sha256
    # (begin, end) of the wanted bytes by file, with all settings; empty for the whole model
    parts: Annotated[dict[FileName, FilePieces], msgspec.Meta(max_length=MAX_MODEL_FILES)] = msgspec.field(
        default_factory=dict
    )
    bytes_per_s: Size = 0  # rate limit, 0 for no limit


class CopyChange(CopyMessage, frozen=True, kw_only=True, tag="CopyChange"):
    """Changes a copy that a PeerCopyRequest requested."""

    fingerprint: Sha256
    what: TransferChange
    bytes_per_s: Size = 0  # new rate limit


class CopyProgress(CopyMessage, frozen=True, kw_only=True, tag="CopyProgress"):
    """Progress of a copy that a PeerCopyRequest requested."""

    transfer: Transfer
