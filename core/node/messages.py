"""What nodes say to each other over a control link: JSON in sealed frames."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from core.errors import Problem, ProtocolError
from core.events import Plan
from core.link.frames import FrameType
from core.text import clean_text
from core.worker.messages import Broken, Failed, Linked, Loaded, Loading

TEXT_LIMIT: Final = 500

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]

FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]

StageReport = Loading | Loaded | Failed | Linked | Broken


class NodeMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all messages between nodes."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a Mac is: sizes in bytes, `rtts` in seconds by device id. `has_model`: whether its worker holds a stage;
    `step`: the last step of work that it has finished, 0 for none.
    """

    name: str
    chip: str
    memory_bytes: Count
    budget_bytes: Count
    used_bytes: Count
    worker_pid: Count | None
    worker_rss_bytes: Count
    rtts: dict[str, float]
    has_model: bool = False
    step: Count = 0


class Ping(NodeMessage, frozen=True, kw_only=True):
    """`sent` is the sender's monotonic clock in seconds; only the sender reads it."""

    sent: float


class Pong(NodeMessage, frozen=True, kw_only=True):
    """The answer to a Ping, with how the answering Mac is."""

    sent: float
    status: Status


class Prepare(NodeMessage, frozen=True, kw_only=True):
    """Head to member: hold stage `index` of the plan."""

    plan: Plan
    index: int


class Prepared(NodeMessage, frozen=True, kw_only=True):
    """Member to head: the worker listens for data on `port`."""

    plan_gen: int
    port: Port


class Checked(NodeMessage, frozen=True, kw_only=True):
    """Member to head: what the files hold from which its worker loads."""

    plan_gen: int
    files: dict[FileName, Sha256]


class LinkUp(NodeMessage, frozen=True, kw_only=True):
    """Head to member: link to the neighbours of `plan`; the next stage's worker listens on `port`."""

    plan: Plan
    port: Port


class Reported(NodeMessage, frozen=True, kw_only=True):
    """Member to head: what its worker reported about the plan."""

    plan_gen: int
    report: StageReport


class StageLost(NodeMessage, frozen=True, kw_only=True):
    """Member to head: its worker ended, the layers are gone."""

    plan_gen: int
    problem: Problem


class Release(NodeMessage, frozen=True, kw_only=True):
    """Head to member: forget the plan and free its memory."""

    plan_gen: int
    reason: str


class KeyChange(NodeMessage, frozen=True, kw_only=True):
    """Member to admin: put my new key in the place of my old one. `request` is that of `core.trust.rotation`, in
    pieces.
    """

    request: tuple[bytes, ...]


class KeyRefused(NodeMessage, frozen=True, kw_only=True):
    """Admin to member: its key stays as it is."""

    problem: Problem


class Bye(NodeMessage, frozen=True, kw_only=True):
    """This node goes away on purpose."""

    reason: str


StageWord = Prepared | Checked | Reported | StageLost
AnyMessage = Ping | Pong | Prepare | LinkUp | Release | KeyChange | KeyRefused | Bye | StageWord

FRAMES: Final[dict[type[NodeMessage], FrameType]] = {
    Ping: FrameType.PING,
    Pong: FrameType.PONG,
    Prepare: FrameType.PLAN,
    Prepared: FrameType.PLAN,
    Checked: FrameType.PLAN,
    LinkUp: FrameType.PLAN,
    Reported: FrameType.PLAN,
    StageLost: FrameType.ERROR,
    Release: FrameType.PLAN,
    KeyChange: FrameType.KEY_CHANGE,
    KeyRefused: FrameType.KEY_CHANGE,
    Bye: FrameType.BYE,
}

_encoder = msgspec.json.Encoder()


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
    return FRAMES[type(message)], _encoder.encode(message)


def from_frame(kind: FrameType, body: bytes) -> AnyMessage:
    """The message of a frame; raises ProtocolError."""
    try:
        message: AnyMessage = msgspec.convert(_clean(msgspec.json.decode(body)), AnyMessage)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"A control frame of type 0x{kind:02x} does not decode.") from error
    if FRAMES[type(message)] != kind:
        raise ProtocolError(f"A {type(message).__name__} came in a frame of type 0x{kind:02x}.")
    return message
