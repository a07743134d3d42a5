"""Messages between the head of a plan and the Macs of its stages."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from core.errors import Problem
from core.events import Plan
from core.link.frames import FrameType
from core.models.files.block_map import Sha256
from core.node.base.node_message import FileName, NodeMessage, Port
from core.numbers import Seconds, Size
from core.requests.trace import MOST_TURNS, PhaseTurn
from core.worker.messages import Failed, LinkBroken, Linked, Loaded, Loading

StageReport = Loading | Loaded | Failed | Linked | LinkBroken


class PlanMessage(NodeMessage, frozen=True, kw_only=True):
    """Base of messages about a plan."""

    FRAME: ClassVar = FrameType.PLAN


class PrepareStage(PlanMessage, frozen=True, kw_only=True, tag="PrepareStage"):
    """Head to member: hold stage `index` of the plan."""

    plan: Plan
    index: Size


class Prepared(PlanMessage, frozen=True, kw_only=True, tag="Prepared"):
    """Member to head: the worker listens for data on `port`."""

    plan_gen: Size
    port: Port


class Checked(PlanMessage, frozen=True, kw_only=True, tag="Checked"):
    """Member to head: the hashes of the files that its worker loads from."""

    plan_gen: Size
    files: dict[FileName, Sha256]


class LinkUp(PlanMessage, frozen=True, kw_only=True, tag="LinkUp"):
    """Head to member: link to the neighbours of `plan`; the next stage's worker listens on `port`."""

    plan: Plan
    port: Port


class Reported(PlanMessage, frozen=True, kw_only=True, tag="Reported"):
    """Member to head: what its worker reported about the plan."""

    plan_gen: Size
    report: StageReport


class StageLost(NodeMessage, frozen=True, kw_only=True, tag="StageLost"):
    """Member to head: its worker ended, the layers are gone."""

    FRAME: ClassVar = FrameType.ERROR
    plan_gen: Size
    problem: Problem


class Release(PlanMessage, frozen=True, kw_only=True, tag="Release"):
    """Head to member: forget the plan and free its memory."""

    plan_gen: Size
    reason: str


class TraceMessage(NodeMessage, frozen=True, kw_only=True):
    """Base of messages of a trace."""

    FRAME: ClassVar = FrameType.TELEMETRY
    number: Size  # the requester's


class ClockRequest(TraceMessage, frozen=True, kw_only=True, tag="ClockRequest"):
    """Requests the receiver's monotonic clock."""


class ClockReply(TraceMessage, frozen=True, kw_only=True, tag="ClockReply"):
    """The reply to a ClockRequest."""

    at_s: Seconds


class PeerTraceRequest(TraceMessage, frozen=True, kw_only=True, tag="PeerTraceRequest"):
    """Head to member: send the phases of your stage's steps that you noted and haven't sent yet."""

    is_on: bool  # whether to note them from now on


class TraceReply(TraceMessage, frozen=True, kw_only=True, tag="TraceReply"):
    """The reply to a PeerTraceRequest: the next turns, none when all are sent."""

    turns: Annotated[tuple[PhaseTurn, ...], msgspec.Meta(max_length=MOST_TURNS)] = ()


StageWord = Prepared | Checked | Reported | StageLost
