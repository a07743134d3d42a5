"""What nodes say to each other over a control link: JSON in sealed frames."""

from __future__ import annotations

import struct
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from core.errors import Problem, ProtocolError
from core.events import Plan, Transfer
from core.link.frames import FrameType
from core.link.ways import MAX_WAYS, Reach
from core.models.files.block_map import FileFacts, Sha256
from core.models.files.hub_origin import HubOrigin
from core.numbers import MOST, Moment, Positive, Seconds, Size
from core.requests import Duration, SpeedResult, TransferChange
from core.requests.trace import MOST_TURNS, PhaseTurn
from core.text import clean_text
from core.worker.messages import Failed, LinkBroken, Linked, Loaded, Loading

TEXT_LIMIT: Final = 500
MAX_HELD: Final = 48
MAX_BROKEN: Final = 32
MAX_MODEL_NAME: Final = 96
MAX_MODEL_FILES: Final = 300
PIECE_BYTES: Final = 48 * 1024
MAX_HASHES: Final = 512
NOT_HERE: Final = bytes(32)
MAX_PARTS: Final = 1500
MAX_RANGES: Final = 12
MAX_LOG_LINES: Final = 24  # that of 500 characters each fit a control frame

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
DeviceId = Annotated[str, msgspec.Meta(max_length=26)]

FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MODEL_NAME)]

FilePieces = Annotated[tuple[tuple[Size, Size], ...], msgspec.Meta(max_length=MAX_PARTS)]

StageReport = Loading | Loaded | Failed | Linked | LinkBroken


class NodeMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all messages between nodes."""


class Leads(msgspec.Struct, frozen=True, kw_only=True):
    """Which model a Mac leads, for how many rows. `takes_relayed`: also requests that other Macs relay to it."""

    model: Annotated[str, msgspec.Meta(max_length=MAX_MODEL_NAME)]
    rows: Positive
    takes_relayed: bool


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a Mac is: sizes in bytes, `rtts` in seconds by device id. `has_model`: whether its worker holds a stage;
    `step`: the last step of work that it has finished, 0 for none; `reach`: where its worker listens.
    """

    name: str
    chip: str
    memory_bytes: Size
    budget_bytes: Size
    used_bytes: Size
    worker_pid: Size | None
    worker_rss_bytes: Size
    spare_rss_bytes: Size
    rtts: dict[DeviceId, Duration]
    has_model: bool = False
    step: Size = 0
    leads: Leads | None = None
    reach: Annotated[tuple[Reach, ...], msgspec.Meta(max_length=MAX_WAYS)] = ()


class Ping(NodeMessage, frozen=True, kw_only=True):
    """`sent` is the sender's monotonic clock in seconds; only the sender reads it."""

    sent: Seconds


class Pong(NodeMessage, frozen=True, kw_only=True):
    """The answer to a Ping, with how the answering Mac is."""

    sent: Seconds
    status: Status


class PrepareStage(NodeMessage, frozen=True, kw_only=True):
    """Head to member: hold stage `index` of the plan."""

    plan: Plan
    index: Size


class Prepared(NodeMessage, frozen=True, kw_only=True):
    """Member to head: the worker listens for data on `port`."""

    plan_gen: Size
    port: Port


class Checked(NodeMessage, frozen=True, kw_only=True):
    """Member to head: what the files hold from which its worker loads."""

    plan_gen: Size
    files: dict[FileName, Sha256]


class LinkUp(NodeMessage, frozen=True, kw_only=True):
    """Head to member: link to the neighbours of `plan`; the next stage's worker listens on `port`."""

    plan: Plan
    port: Port


class Reported(NodeMessage, frozen=True, kw_only=True):
    """Member to head: what its worker reported about the plan."""

    plan_gen: Size
    report: StageReport


class StageLost(NodeMessage, frozen=True, kw_only=True):
    """Member to head: its worker ended, the layers are gone."""

    plan_gen: Size
    problem: Problem


class Release(NodeMessage, frozen=True, kw_only=True):
    """Head to member: forget the plan and free its memory."""

    plan_gen: Size
    reason: str


class KeyChange(NodeMessage, frozen=True, kw_only=True):
    """Member to admin: put my new key in the place of my old one. `request` is that of `core.trust.roster.rotation`, in
    pieces.
    """

    request: tuple[bytes, ...]


class KeyRefused(NodeMessage, frozen=True, kw_only=True):
    """Admin to member: its key stays as it is."""

    problem: Problem


class LinkProbe(NodeMessage, frozen=True, kw_only=True):
    """A piece of a speed test, to be answered: `size` zeros travel with it. It is no JSON, for not the reading of text
    is to be measured.
    """

    number: Number
    size: Number


class Probed(NodeMessage, frozen=True, kw_only=True):
    """The answer to a Probe."""

    number: Number


class SpeedAsk(NodeMessage, frozen=True, kw_only=True):
    """Measure the link to `target` for me; `test` is my number for it."""

    test: Size
    target: DeviceId


class SpeedMoved(NodeMessage, frozen=True, kw_only=True):
    """So many probes of the test are back."""

    test: Size
    done: Size


class SpeedResultSent(NodeMessage, frozen=True, kw_only=True):
    """What the test came to, or why it came to nothing."""

    test: Size
    result: SpeedResult | None = None
    problem: Problem | None = None


class SpeedStop(NodeMessage, frozen=True, kw_only=True):
    """The person who wanted the test does not want it any more."""

    test: Size


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
    files: Annotated[dict[FileName, FileFacts], msgspec.Meta(max_length=MAX_MODEL_FILES)] = {}
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
    """This file of a model, of which each of us has a part, is not what the hub's hash says: do not keep yours."""

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
    parts: Annotated[dict[FileName, FilePieces], msgspec.Meta(max_length=MAX_MODEL_FILES)] = {}
    bytes_per_s: Size = 0


class CopyChange(NodeMessage, frozen=True, kw_only=True):
    """What is to become of the copying that a CopyAsk of mine wanted; `bytes_per_s` counts where it gets a limit."""

    fingerprint: Sha256
    what: TransferChange
    bytes_per_s: Size = 0


class CopyProgress(NodeMessage, frozen=True, kw_only=True):
    """How far the copying is that a CopyAsk wanted."""

    transfer: Transfer


class RelayAsk(NodeMessage, frozen=True, kw_only=True):
    """A piece of what a program asks the sender for, to be answered by the Mac that leads; `number` is mine for it. It
    is no JSON, for words are to arrive as they were said; `core.node.base.relayed` says what the pieces make.
    """

    number: Size
    data: bytes
    is_last: bool


class RelayReply(NodeMessage, frozen=True, kw_only=True):
    """A piece of what comes of a RelayAsk, no JSON either."""

    number: Size
    data: bytes
    is_last: bool


class RelayStop(NodeMessage, frozen=True, kw_only=True):
    """The program that asked is gone: what is under way for it is to end."""

    number: Size


class ClockAsk(NodeMessage, frozen=True, kw_only=True):
    """What does your monotonic clock show? `number` is mine for this."""

    number: Size


class ClockReply(NodeMessage, frozen=True, kw_only=True):
    """The answer to a ClockAsk."""

    number: Size
    at_s: Seconds


class TraceAsk(NodeMessage, frozen=True, kw_only=True):
    """Head to member: tell the phases of the steps that your stage did and you did not tell yet, and note them from now
    on, or no longer. `number` is mine for this.
    """

    number: Size
    is_on: bool


class TraceReply(NodeMessage, frozen=True, kw_only=True):
    """The answer to a TraceAsk: the next turns, none where all are told."""

    number: Size
    turns: Annotated[tuple[PhaseTurn, ...], msgspec.Meta(max_length=MOST_TURNS)] = ()


class LogAsk(NodeMessage, frozen=True, kw_only=True):
    """Which lines of your log come after line `after` of its `run`? All, where it is another run by now."""

    run: Size
    after: Size


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the sender's log; `at` by its clock, in seconds since the epoch."""

    at: Moment
    level: Literal["DEBUG", "INFO", "WARN", "ERROR"]
    text: str


class LogReply(NodeMessage, frozen=True, kw_only=True):
    """The answer to a LogAsk: the next lines, the number of the last of them, and what the sender's clock shows."""

    run: Size
    last: Size
    now: Moment
    lines: Annotated[tuple[LogEntry, ...], msgspec.Meta(max_length=MAX_LOG_LINES)] = ()


class Bye(NodeMessage, frozen=True, kw_only=True):
    """This node goes away on purpose."""

    reason: str


StageWord = Prepared | Checked | Reported | StageLost
SpeedWord = LinkProbe | Probed | SpeedAsk | SpeedMoved | SpeedResultSent | SpeedStop
FileWord = FilesAsk | FilesSent | HashesAsk | HashesSent | BytesAsk | BytesReady
CopyWord = CopyAsk | CopyChange | CopyProgress
RelayWord = RelayAsk | RelayStop
TraceWord = ClockAsk | ClockReply | TraceAsk | TraceReply
LogWord = LogAsk | LogReply
AnyMessage = (
    Ping
    | Pong
    | PrepareStage
    | LinkUp
    | Release
    | KeyChange
    | KeyRefused
    | Bye
    | StageWord
    | SpeedWord
    | Holds
    | HoldsAsk
    | FileWord
    | CopyWord
    | FalseFile
    | RelayWord
    | RelayReply
    | TraceWord
    | LogWord
)

FRAMES: Final[dict[type[NodeMessage], FrameType]] = {
    Ping: FrameType.PING,
    Pong: FrameType.PONG,
    PrepareStage: FrameType.PLAN,
    Prepared: FrameType.PLAN,
    Checked: FrameType.PLAN,
    LinkUp: FrameType.PLAN,
    Reported: FrameType.PLAN,
    StageLost: FrameType.ERROR,
    Release: FrameType.PLAN,
    KeyChange: FrameType.KEY_CHANGE,
    KeyRefused: FrameType.KEY_CHANGE,
    LinkProbe: FrameType.PROBE,
    Probed: FrameType.SPEED_TEST,
    SpeedAsk: FrameType.SPEED_TEST,
    SpeedMoved: FrameType.SPEED_TEST,
    SpeedResultSent: FrameType.SPEED_TEST,
    SpeedStop: FrameType.SPEED_TEST,
    Holds: FrameType.MODEL_INVENTORY,
    HoldsAsk: FrameType.MODEL_INVENTORY,
    FilesAsk: FrameType.COPY,
    FilesSent: FrameType.COPY,
    HashesAsk: FrameType.COPY,
    HashesSent: FrameType.FILE_PART,
    BytesAsk: FrameType.COPY,
    BytesReady: FrameType.COPY,
    CopyAsk: FrameType.COPY,
    CopyChange: FrameType.COPY,
    CopyProgress: FrameType.COPY,
    FalseFile: FrameType.COPY,
    RelayAsk: FrameType.RELAY_ASK,
    RelayReply: FrameType.RELAY_REPLY,
    RelayStop: FrameType.CANCEL,
    ClockAsk: FrameType.TELEMETRY,
    ClockReply: FrameType.TELEMETRY,
    TraceAsk: FrameType.TELEMETRY,
    TraceReply: FrameType.TELEMETRY,
    LogAsk: FrameType.LOG,
    LogReply: FrameType.LOG,
    Bye: FrameType.BYE,
}

_Piece = TypeVar("_Piece", RelayAsk, RelayReply)
_MARKS: Final = {RelayAsk: 0xA0, RelayReply: 0xB0}  # one more in the last piece

_encoder = msgspec.json.Encoder()
_PROBE: Final = struct.Struct("<II")
_HASHES: Final = struct.Struct("<QI")
_PIECE: Final = struct.Struct("<BQ")


def _clean(value: Any) -> Any:
    """Every text in a message of another Mac without what could drive a terminal: the one place where it comes in."""
    match value:
        case str():
            return clean_text(value)[:TEXT_LIMIT]
        case list():
            return [_clean(v) for v in value]
        case dict():
            return {_clean(k): _clean(v) for k, v in value.items()}
        case _:
            return value


def to_frame(message: AnyMessage) -> tuple[FrameType, bytes]:
    """Frame type and body of a message."""
    if isinstance(message, LinkProbe):
        return FrameType.PROBE, _PROBE.pack(message.number, message.size) + bytes(message.size)
    if isinstance(message, HashesSent):
        return FrameType.FILE_PART, _HASHES.pack(message.number, len(message.data)) + message.data
    if isinstance(message, RelayAsk | RelayReply):
        mark = _MARKS[type(message)] + message.is_last
        return FRAMES[type(message)], _PIECE.pack(mark, message.number) + message.data
    return FRAMES[type(message)], _encoder.encode(message)


def from_frame(kind: FrameType, body: bytes) -> AnyMessage:
    """The message of a frame; raises ProtocolError."""
    if kind is FrameType.PROBE:
        return _probe(body)
    if kind is FrameType.FILE_PART:
        return _hashes(body)
    if kind is FrameType.RELAY_ASK:
        return _piece(RelayAsk, body)
    if kind is FrameType.RELAY_REPLY:
        return _piece(RelayReply, body)
    try:
        message: AnyMessage = msgspec.convert(_clean(msgspec.json.decode(body)), AnyMessage)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"A control frame of type 0x{kind:02x} does not decode.") from error
    if FRAMES[type(message)] != kind:
        raise ProtocolError(f"A {type(message).__name__} came in a frame of type 0x{kind:02x}.")
    return message


def _probe(body: bytes) -> LinkProbe:
    if len(body) >= _PROBE.size:
        number, size = _PROBE.unpack_from(body)
        if size == len(body) - _PROBE.size:
            return LinkProbe(number=number, size=size)
    raise ProtocolError(f"A probe of {len(body)} bytes does not hold what it says.")


def _hashes(body: bytes) -> HashesSent:
    if len(body) >= _HASHES.size:
        number, length = _HASHES.unpack_from(body)
        if number <= MOST and length == len(body) - _HASHES.size <= MAX_HASHES * len(NOT_HERE):
            return HashesSent(number=number, data=body[_HASHES.size :])
    raise ProtocolError(f"Hashes of {len(body)} bytes are not what they say.")


def _piece(kind: type[_Piece], body: bytes) -> _Piece:
    if _PIECE.size < len(body) <= _PIECE.size + PIECE_BYTES:
        mark, number = _PIECE.unpack_from(body)
        if mark - _MARKS[kind] in (0, 1) and number <= MOST:
            return kind(number=number, data=body[_PIECE.size :], is_last=mark != _MARKS[kind])
    raise ProtocolError(f"A piece of a relayed request of {len(body)} bytes is no such thing.")
