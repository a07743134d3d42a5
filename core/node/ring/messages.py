"""Messages between the head of a plan and the Macs of its stages."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from core.errors import NodeError
from core.events import Plan
from core.link.frames import FrameType
from core.models.files.block_map import Sha256
from core.node.base.message_table import read_clean
from core.node.base.node_message import FileName, NodeMessage, Port, in_pieces
from core.node.peers.stage_state import HeldStage, PlanId
from core.numbers import Seconds, Size
from core.requests.trace import MOST_TURNS, PhaseTurn
from core.version import CAPS, compute_hash, program_version
from core.worker.messages import Failed, LinkBroken, Linked, Loaded, Loading
from core.worker.neighbours import plan_digest

StageEvent = Loading | Loaded | Failed | Linked | LinkBroken


class PlanMessage(NodeMessage, frozen=True, kw_only=True):
    """Base of messages about a plan."""

    FRAME: ClassVar = FrameType.PLAN


class PlanOrder(PlanMessage, frozen=True, kw_only=True):
    """Base of the head's orders about a plan. It travels as the bytes that the head encoded, and the data links are
    bound to their digest: a version that decodes another plan from them, or knows less of it, changes nothing.
    """

    plan_gen: Size
    number: Size  # of the plan's id
    sent: tuple[bytes, ...]  # JSON, in pieces

    def plan_id(self, head: str) -> PlanId:
        return PlanId(head, self.number)

    @property
    def digest(self) -> bytes:
        return plan_digest(b"".join(self.sent))

    def plan(self) -> Plan:
        """The plan. Raises NotUnderstood, ProtocolError, or NodeError if this version can't do what the plan needs."""
        plan: Plan = read_clean(b"".join(self.sent), Plan, "plan")
        if lacking := sorted({*plan.needs} - CAPS):
            what = f"the plan needs {', '.join(lacking)}, which its macluster {program_version()} can't do."
            raise NodeError(what, "Update macluster there.")
        return plan


class PrepareStage(PlanOrder, frozen=True, kw_only=True, tag="PrepareStage"):
    """Head to member: hold stage `index` of the plan."""

    index: Size
    compute: str  # the head's `core.version.compute_hash`

    @classmethod
    def of(cls, plan: Plan, index: int, number: int = 0) -> PrepareStage:
        return cls(plan_gen=plan.plan_gen, number=number, sent=_sent(plan), index=index, compute=compute_hash())


class StageReport(PlanMessage, frozen=True, kw_only=True, tag="StageReport"):
    """Member to head: its stage changed."""

    stage: HeldStage


class FilesRequest(PlanMessage, frozen=True, kw_only=True, tag="FilesRequest"):
    """Head to member: your files are not the same as mine. Which are they?"""

    plan: PlanId


class FilesReply(PlanMessage, frozen=True, kw_only=True, tag="FilesReply"):
    """Member to head: the hashes of the files that its worker loads from."""

    plan: PlanId
    files: dict[FileName, Sha256]


class LinkUp(PlanOrder, frozen=True, kw_only=True, tag="LinkUp"):
    """Head to member: link to the neighbours of the plan; the next stage's worker listens on `port`."""

    port: Port

    @classmethod
    def of(cls, plan: Plan, port: int, number: int = 0) -> LinkUp:
        return cls(plan_gen=plan.plan_gen, number=number, sent=_sent(plan), port=port)


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


def _sent(plan: Plan) -> tuple[bytes, ...]:
    return in_pieces(msgspec.json.encode(plan))
