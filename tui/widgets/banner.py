"""A problem that lasts: what happened, and what to do."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from core.errors import Problem
from tui.format import BAD, WARN


class Banner(Static):
    """Hidden while there is no problem."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, classes="banner", markup=False)
        self._shown: Problem | None = None
        self.display = False

    def show(self, problem: Problem | None) -> None:
        """Show `problem`, or nothing."""
        if problem == self._shown:
            return
        self._shown = problem
        self.display = problem is not None
        if problem is not None:
            self.update(banner_content(problem))


def banner_content(problem: Problem) -> Content:
    """What happened, then the way out."""
    fix = ("\n→ " + problem.fix, WARN) if problem.fix else ""
    return Content.assemble(("✗ ", BAD), (problem.what, "bold"), fix)
