"""The versions of the node, of what is installed and of this program. Pure."""

from __future__ import annotations

from core.errors import Problem, VersionsDiffer
from core.events import Snapshot
from core.version import difference, program_version, release_of


def version_words(now: Snapshot) -> str:
    """A sentence if the node should be started again; "" if not. A commit alone is left to the node's own look."""
    here = program_version()
    return now.outdated or (difference(now.version, here) if release_of(now.version) != release_of(here) else "")


def is_other_version(problem: Problem | None) -> bool:
    return problem is not None and problem.kind == VersionsDiffer.__name__
