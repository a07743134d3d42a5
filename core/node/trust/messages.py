"""Messages for replacing a Mac's key."""

from __future__ import annotations

from typing import ClassVar

from core.errors import Problem
from core.link.frames import FrameType
from core.node.base.node_message import NodeMessage


class KeyChange(NodeMessage, frozen=True, kw_only=True, tag="KeyChange"):
    """Member to admin: replace my key in the roster."""

    FRAME: ClassVar = FrameType.KEY_CHANGE
    request: tuple[bytes, ...]  # see `core.trust.roster.key_rotation`, in pieces


class KeyRefused(NodeMessage, frozen=True, kw_only=True, tag="KeyRefused"):
    """Admin to member: the key is not replaced."""

    FRAME: ClassVar = FrameType.KEY_CHANGE
    problem: Problem
