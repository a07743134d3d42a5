"""What nodes say to each other over a control link, but for models on disks (`file_messages`)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from core.errors import Problem
from core.events import Plan
from core.link.network_paths import MAX_NETWORK_PATHS, ListenAddress
from core.models.files.block_map import Sha256
from core.numbers import Moment, Positive, Seconds, Size
from core.requests.body import Duration
from core.requests.checks import SpeedResult
from core.requests.trace import MOST_TURNS, PhaseTurn
from core.worker.messages import Failed, LinkBroken, Linked, Loaded, Loading

MAX_MODEL_NAME: Final = 96
PIECE_BYTES: Final = 48 * 1024
MAX_LOG_LINES: Final = 24  # that of 500 characters each fit a control frame

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
DeviceId = Annotated[str, msgspec.Meta(max_length=26)]

FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MODEL_NAME)]


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
    reach: Annotated[tuple[ListenAddress, ...], msgspec.Meta(max_length=MAX_NETWORK_PATHS)] = ()


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
    """Member to admin: put my new key in the place of my old one. `request` is that of
    `core.trust.roster.key_rotation`, in pieces.
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
RelayWord = RelayAsk | RelayStop
TraceWord = ClockAsk | ClockReply | TraceAsk | TraceReply
LogWord = LogAsk | LogReply
