"""Messages between linked Macs about themselves and their link: pings, speed tests, logs."""

from __future__ import annotations

import struct
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec

from core.errors import Problem, ProtocolError
from core.events import LedFacts, MacFigures
from core.link.frames import FrameType
from core.link.network_paths import MAX_NETWORK_PATHS, ListenAddress
from core.node.base.node_message import BEATS, MAX_MODEL_NAME, UNLIMITED, BinaryMessage, DeviceId, NodeMessage, Number
from core.node.peers.stage_state import HeldStage
from core.numbers import Moment, Seconds, Size
from core.rates import Rate
from core.requests.body import Duration
from core.requests.checks import SpeedResult

MAX_LOG_LINES: Final = 24  # of 500 characters each, they fit a control frame
LOGS: Final = Rate(4.0, 8.0)  # requests and replies come once a second

_PROBE: Final = struct.Struct("<II")  # number, size


class Leads(LedFacts, frozen=True, kw_only=True):
    """The model that a Mac leads."""

    model: Annotated[str, msgspec.Meta(max_length=MAX_MODEL_NAME)]
    fingerprint: Annotated[str, msgspec.Meta(max_length=64)] = ""  # of the model, hex


class Status(MacFigures, frozen=True, kw_only=True):
    """The state of a Mac."""

    name: str
    has_model: bool = False  # its worker holds a stage
    step: Size = 0  # last finished step; 0: none
    leads: Leads | None = None
    reach: Annotated[
        tuple[ListenAddress, ...], msgspec.Meta(max_length=MAX_NETWORK_PATHS)
    ] = ()  # addresses at which its worker listens


class Greeting(NodeMessage, frozen=True, kw_only=True, tag="Greeting"):
    """The first message of a link in both directions, readable by all versions: a field may be added, none changed."""

    FRAME: ClassVar = FrameType.GREETING
    RATE: ClassVar = LOGS
    version: str = ""  # of macluster
    wire: tuple[Size, Size] = (0, 0)  # oldest and newest version of the messages between Macs
    compute: str = ""  # `core.version.compute_hash`
    mlx_lm: str = ""
    mlx: str = ""
    python: str = ""
    caps: tuple[str, ...] = ()
    installed_by: str = ""  # "uv tool", "pipx", "uv", "pip" or ""

    @property
    def runs_on(self) -> str:
        packages = (("mlx-lm", self.mlx_lm), ("mlx", self.mlx), ("Python", self.python))
        return " · ".join(f"{name} {version}" for name, version in packages if version)


class Ping(NodeMessage, frozen=True, kw_only=True, tag="Ping"):
    """A sign of life, sent with every beat. It answers the receiver's last Ping and tells what changed since then."""

    FRAME: ClassVar = FrameType.PING
    RATE: ClassVar = BEATS
    sent: Seconds  # the sender's monotonic clock; only the sender reads it
    answers: Seconds | None = None  # `sent` of the receiver's last Ping; None: it was answered, or none came
    held_s: Seconds = 0.0  # time between that Ping and this answer
    rests: bool = False  # nothing runs on the sender
    logged: Size = 0  # lines in the sender's log
    status: Status | None = None  # None: unchanged
    stage: HeldStage | None = None  # of the receiver's plan, each time: a lost report heals
    rtts: dict[DeviceId, Duration] = msgspec.field(default_factory=dict)  # changed round trips to linked Macs, seconds


class Bye(NodeMessage, frozen=True, kw_only=True, tag="Bye"):
    """This node stops on purpose."""

    FRAME: ClassVar = FrameType.BYE
    reason: str


class NotKnown(NodeMessage, frozen=True, kw_only=True, tag="NotKnown"):
    """The reply to a message that the sender does not understand, and whose effect the receiver waits for."""

    FRAME: ClassVar = FrameType.ERROR
    frame: Size  # of that message
    what: str


class LinkProbe(BinaryMessage, frozen=True, kw_only=True, tag="LinkProbe"):
    """A piece of a speed test, followed by `size` zeros. Not JSON: parsing text isn't to be measured."""

    FRAME: ClassVar = FrameType.PROBE
    RATE: ClassVar = UNLIMITED
    number: Number
    size: Number

    def to_body(self) -> bytes:
        return _PROBE.pack(self.number, self.size) + bytes(self.size)

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        if len(body) >= _PROBE.size:
            number, size = _PROBE.unpack_from(body)
            if size == len(body) - _PROBE.size:
                return cls(number=number, size=size)
        raise ProtocolError(f"A probe of {len(body)} bytes has another size than it says.")


class SpeedMessage(NodeMessage, frozen=True, kw_only=True):
    """Base of the other messages of speed tests."""

    FRAME: ClassVar = FrameType.SPEED_TEST
    RATE: ClassVar = UNLIMITED


class Probed(SpeedMessage, frozen=True, kw_only=True, tag="Probed"):
    """The reply to a LinkProbe."""

    number: Number


class PeerSpeedRequest(SpeedMessage, frozen=True, kw_only=True, tag="PeerSpeedRequest"):
    """Requests a test of the receiver's link to `target`."""

    test: Size  # number given by the sender
    target: DeviceId


class SpeedMoved(SpeedMessage, frozen=True, kw_only=True, tag="SpeedMoved"):
    """Progress of a test: `done` probes came back."""

    test: Size
    done: Size


class SpeedResultSent(SpeedMessage, frozen=True, kw_only=True, tag="SpeedResultSent"):
    """The result of a test, or the reason for none."""

    test: Size
    result: SpeedResult | None = None
    problem: Problem | None = None


class SpeedStop(SpeedMessage, frozen=True, kw_only=True, tag="SpeedStop"):
    """Cancels a test that the sender requested."""

    test: Size


class LogMessage(NodeMessage, frozen=True, kw_only=True):
    """Base of messages about logs."""

    FRAME: ClassVar = FrameType.LOG
    RATE: ClassVar = LOGS


class LogRequest(LogMessage, frozen=True, kw_only=True, tag="LogRequest"):
    """Requests log lines after line `after` of `run`; all lines if the receiver's node has restarted since."""

    run: Size
    after: Size


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the sender's log."""

    at: Moment  # its clock, seconds since the epoch
    level: Literal["DEBUG", "INFO", "WARN", "ERROR"]
    text: str


class LogReply(LogMessage, frozen=True, kw_only=True, tag="LogReply"):
    """The reply to a LogRequest: the next lines."""

    run: Size
    last: Size  # number of the last line
    now: Moment  # the sender's clock, seconds since the epoch
    lines: Annotated[tuple[LogEntry, ...], msgspec.Meta(max_length=MAX_LOG_LINES)] = ()
