"""What nodes say to each other about models on their disks: who has what, and how it is copied."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from core.errors import Problem
from core.events import Transfer
from core.models.files.block_map import FileFacts, Sha256
from core.models.files.hub_origin import HubOrigin
from core.node.base.messages import FileName, ModelName, NodeMessage, Port
from core.numbers import Positive, Size
from core.requests.disks import TransferChange

MAX_HELD: Final = 48
MAX_BROKEN: Final = 32
MAX_MODEL_FILES: Final = 300
MAX_HASHES: Final = 512
NOT_HERE: Final = bytes(32)
MAX_PARTS: Final = 1500
MAX_RANGES: Final = 12

FilePieces = Annotated[tuple[tuple[Size, Size], ...], msgspec.Meta(max_length=MAX_PARTS)]


class HeldModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be used on the sender's disk, where it takes `disk_bytes`, without where it lies. Where
    `missing_bytes` of it are not there, `layers_here` are the layers that are, as half-open ranges, and `hub` may say
    where on the hub the rest is.
    """

    name: ModelName
    fingerprint: Sha256
    model_type: Annotated[str, msgspec.Meta(max_length=64)]
    layers: Annotated[int, msgspec.Meta(ge=1, lt=1 << 16)]
    total_bytes: Size
    quantization: Annotated[str, msgspec.Meta(max_length=32)]
    context_max: Size
    missing_bytes: Size = 0
    disk_bytes: Size = 0
    layers_here: Annotated[tuple[tuple[Size, Size], ...], msgspec.Meta(max_length=MAX_RANGES)] = ()
    hub: HubOrigin | None = None


class Holds(NodeMessage, frozen=True, kw_only=True):
    """Which models lie on the sender's disk, told when the two are linked, and when that changes; `broken`: names of
    those that cannot be used. `answers`: the number of the HoldsAsk that it answers, 0 for none.
    """

    models: Annotated[tuple[HeldModel, ...], msgspec.Meta(max_length=MAX_HELD)]
    broken: Annotated[tuple[ModelName, ...], msgspec.Meta(max_length=MAX_BROKEN)] = ()
    answers: Size = 0


class HoldsAsk(NodeMessage, frozen=True, kw_only=True):
    """Look at your disk now, and tell me what it holds; `number` comes back with it."""

    number: Positive = 1


class FilesAsk(NodeMessage, frozen=True, kw_only=True):
    """Which files make up the model with this fingerprint?"""

    fingerprint: Sha256


class FilesSent(NodeMessage, frozen=True, kw_only=True):
    """The answer to a FilesAsk: the files by name, and whether all of each is there; or why there is none."""

    fingerprint: Sha256
    files: Annotated[dict[FileName, FileFacts], msgspec.Meta(max_length=MAX_MODEL_FILES)] = msgspec.field(
        default_factory=dict
    )
    is_whole: bool = True
    problem: Problem | None = None


class HashesAsk(NodeMessage, frozen=True, kw_only=True):
    """What is the SHA-256 of each block of the file from block `first` on, MAX_HASHES of them or all that are left?
    NOT_HERE stands for one that you do not have. `number` is mine for this. `compared`: of all blocks, yours or not, of
    the file as it was compared with the hub's hash; none where it was not.
    """

    number: Size
    fingerprint: Sha256
    name: FileName
    first: Size
    compared: bool = False


class HashesSent(NodeMessage, frozen=True, kw_only=True):
    """The answer to a HashesAsk, which is no JSON; fewer where it cannot be read any more."""

    number: Size
    data: bytes


class FalseFile(NodeMessage, frozen=True, kw_only=True):
    """This file of a model that you have in part is not what the hub's hash says: do not keep what you have of it."""

    fingerprint: Sha256
    name: FileName


class BytesAsk(NodeMessage, frozen=True, kw_only=True):
    """Open a door for me by which I can fetch blocks of this model: a link of its own. `number` is mine for this."""

    number: Size
    fingerprint: Sha256


class BytesReady(NodeMessage, frozen=True, kw_only=True):
    """The answer to a BytesAsk: link to me on `port`, or there is none, and why."""

    number: Size
    port: Port | None = None
    problem: Problem | None = None


class CopyAsk(NodeMessage, frozen=True, kw_only=True):
    """Copy this model from me to your disk. `parts`: by file begin and end of the bytes that are wanted, with all
    settings; none for the whole model. `bytes_per_s`: no quicker than that, 0 for as quick as it goes.
    """

    fingerprint: Sha256
    parts: Annotated[dict[FileName, FilePieces], msgspec.Meta(max_length=MAX_MODEL_FILES)] = msgspec.field(
        default_factory=dict
    )
    bytes_per_s: Size = 0


class CopyChange(NodeMessage, frozen=True, kw_only=True):
    """What is to become of the copying that a CopyAsk of mine wanted; `bytes_per_s` counts where it gets a limit."""

    fingerprint: Sha256
    what: TransferChange
    bytes_per_s: Size = 0


class CopyProgress(NodeMessage, frozen=True, kw_only=True):
    """How far the copying is that a CopyAsk wanted."""

    transfer: Transfer


FileWord = FilesAsk | FilesSent | HashesAsk | HashesSent | BytesAsk | BytesReady
CopyWord = CopyAsk | CopyChange | CopyProgress
