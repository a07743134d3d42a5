"""Contexts of nodes, from the parts that a test has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from core.node.base.bus import Bus
from core.node.base.context import NodeContext
from core.node.base.journal import Journal
from core.node.base.message_table import MessageTable
from core.node.base.signals import Signals
from core.node.config import NodeConfig
from core.settings import Home
from core.trust.trust_assessment import KnownFaults
from tests.support.tasks import tasks_of

NOWHERE = Path("/nonexistent")


def context_of(*, own_id: str = "", config: dict[str, Any] | None = None, **parts: Any) -> NodeContext:
    """A context with those parts; each other part is None and fails where it is used. With `own_id`, the identity is
    only that.
    """
    options: dict[str, Any] = {"home": Home(NOWHERE), "name": "mac", "host": "127.0.0.1", "port": 0, "budget_bytes": 0}
    bus = parts.get("bus") or Bus()
    journal = parts.get("journal") or Journal(NOWHERE / "log", "mac", bus)
    given: dict[str, Any] = {
        "config": NodeConfig(**options | (config or {})),
        "name": "mac",
        "identity": SimpleNamespace(text_id=own_id) if own_id else None,
        "store": None,
        "seen": None,
        "faults": KnownFaults(),
        "assessment": None,
        "bus": bus,
        "signals": Signals(),
        "journal": journal,
        "tasks": parts.get("tasks") or tasks_of(journal),
        "messages": MessageTable(),
    }
    return NodeContext(**cast(Any, given | parts))
