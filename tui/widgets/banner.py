"""A lasting problem: what happened, and what to do."""

from __future__ import annotations

from typing import Final

import msgspec
from textual.content import Content

from core.errors import NodeUnreachable, PortTaken, Problem, VersionsDiffer
from core.events import Snapshot
from tui.state.format import BAD, WARN
from tui.state.versions import is_other_version, version_words
from tui.widgets.text_view import TextView

RESTARTS: Final = "R restarts macluster's service; if that changes nothing, quit and start macluster again."


class Banner(TextView):
    """Shows a lasting problem; hidden without one."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, classes="banner")
        self.display = False

    def show(self, problem: Problem | None) -> None:
        self.display = problem is not None
        if problem is not None:
            self.draw(problem_content(problem, style="bold"))


def outdated(now: Snapshot) -> Problem | None:
    """The problem if the node, its installation and this program have different versions."""
    said = version_words(now)
    return VersionsDiffer(said, RESTARTS).problem if said else None


def startable(problem: Problem | None) -> Problem | None:
    """The problem with the keys that start a node here."""
    if problem is None:
        return None
    is_taken = problem.kind == PortTaken.__name__
    if is_other_version(problem):
        return msgspec.structs.replace(problem, fix=RESTARTS)
    keys = "N starts it again" + (", P starts it on another port." if is_taken else ".")
    known = (NodeUnreachable.fix_by_default, PortTaken.fix_by_default)
    fix = "" if problem.fix in known else f"{problem.fix} "
    return msgspec.structs.replace(problem, fix=f"{fix}{keys}")


def problem_content(problem: Problem, head: str = "✗ ", style: str = "") -> Content:
    """A problem after `head`: what happened, and what to do in a second line."""
    fix = (f"\n→ {problem.fix}" if problem.fix else "", WARN)
    return Content.assemble((head, BAD), (problem.what, style), fix)
