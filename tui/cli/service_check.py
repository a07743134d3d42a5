"""The check of `macluster verify` that the system's report of the service can be read."""

from __future__ import annotations

from core.mac.service import ServiceState
from core.verify.check import Check, Outcome, failed, passed, skipped
from tui.cli.service import current

SERVICE_CHECK = Check("service", "the system's report of the service can be read", lambda _: outcome(current()))


def outcome(state: ServiceState) -> Outcome:
    """Passed if the report says whether the service runs, its process, and its number of starts."""
    if state.is_installed is None:
        return skipped("the system does not report whether a service is installed")
    if not state.is_installed:
        return skipped("no service is installed (macluster service install)")
    has_process = state.pid is not None or not state.is_running
    is_understood = state.state != "unknown" and state.starts is not None and has_process
    if not is_understood:
        return failed("the report lacks the state, the process or the number of starts")
    return passed(f"{'it runs' if state.is_running else 'it does not run'}; starts: {state.starts}")
