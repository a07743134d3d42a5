"""Whether `macluster verify` understands what the system says of the node as a service."""

from __future__ import annotations

from core.mac.service import ServiceState
from core.verify.check import Check, Outcome, failed, passed, skipped
from tui.cli.service import current

SERVICE_CHECK = Check("service", "what the system says of the service is understood", lambda _: outcome(current()))


def outcome(state: ServiceState) -> Outcome:
    """By what it must say of a service that is there: whether it runs, as which process, and how often it began."""
    if state.is_installed is None:
        return skipped("the system does not say whether there is a service")
    if not state.is_installed:
        return skipped("no service is installed (macluster service install)")
    has_process = state.pid is not None or not state.is_running
    is_understood = state.state != "unknown" and state.starts is not None and has_process
    if not is_understood:
        return failed("it says something else than whether it runs, as which process, and how often it was started")
    return passed(f"{'it runs' if state.is_running else 'it does not run'}; starts: {state.starts}")
