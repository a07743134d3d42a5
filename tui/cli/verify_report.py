"""The report of `macluster verify`: runs all checks and prints their results."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version
from time import perf_counter

from core.mac.chip import chip_name
from core.mac.memory import physical_bytes
from core.mac.requirements import macos_version
from core.mac.service import ServiceState
from core.settings import GB, Home
from core.verify.check import Check, CheckResult, Outcome, Report, failed, passed, skipped
from core.verify.checks import checks_of
from core.verify.running import run_checks
from core.version import program_version
from tui.cli.launch import home_of
from tui.cli.output import to_json
from tui.cli.paired_checks import paired_checks
from tui.cli.service import current
from tui.cli.terminal_checks import terminal_checks
from tui.state.format import FINDING_MARKS

SERVICE_CHECK = Check("service", "the system's report of the service can be read", lambda _: service_outcome(current()))


def all_checks(home: Home, host: str, mac: str) -> tuple[Check, ...]:
    return (*terminal_checks(), *checks_of(host), SERVICE_CHECK, *paired_checks(home, mac))


async def report(args: argparse.Namespace) -> int:
    """Print each result as soon as it is known, or all as one JSON object; the status is 1 if one failed."""
    started, checked = perf_counter(), []
    system = system_of()
    if not args.json:
        print(f"macluster {program_version()}: {', '.join(system.values())}", flush=True)
    checks = all_checks(home_of(args), args.host, args.mac)
    proves = {check.name: check.proves for check in checks}
    async for each in run_checks(checks):
        checked.append(each)
        if not args.json:
            print(line_of(each, proves[each.name]), flush=True)
    seconds = round(perf_counter() - started, 1)
    whole = Report(version=program_version(), system=system, checks=checked, seconds=seconds)
    print(to_json(whole) if args.json else summary(whole))
    return 1 if whole.failed else 0


def system_of() -> dict[str, str]:
    mac = macos_version()
    return {
        "system": f"macOS {mac}" if mac else platform.system(),
        "machine": platform.machine(),
        "chip": chip_name(),
        "memory": f"{physical_bytes() / GB:.0f} GB",
        "python": f"Python {platform.python_version()}",
        **{name: f"{name} {version(name)}" for name in ("mlx", "mlx-lm")},
    }


def line_of(checked: CheckResult, proves: str) -> str:
    if checked.skipped_because:
        mark, word, what = FINDING_MARKS["unknown"], "skipped", checked.skipped_because
    else:
        mark, word = (FINDING_MARKS["ok"], "passed") if checked.passed else (FINDING_MARKS["bad"], "FAILED")
        what = checked.figure if checked.passed else f"{checked.figure} (it checks that {proves})"
    return f"{mark.glyph} {word:<7} {checked.name}: {what} ({checked.seconds:.1f} s)"


def summary(report: Report) -> str:
    passed, bad = sum(each.passed for each in report.checks), len(report.failed)
    counted = f"{passed} passed, {bad} failed, {len(report.checks) - passed - bad} skipped, in {report.seconds:.0f} s."
    return f"{counted} To report a problem, attach `macluster verify --json`: it contains no name and no address."


def service_outcome(state: ServiceState) -> Outcome:
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
