"""`macluster service`: runs the node as a system service, from boot on and again after a crash."""

from __future__ import annotations

import argparse
import getpass
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep

import msgspec

from core.errors import IdentityError, NodeError, Problem, UsageError
from core.mac import service as services
from core.mac.service import KEPT_VARIABLES, Service, ServicePlan, ServiceState, ServiceStep, command_line
from core.node.base.last_run import read_last_run
from core.requests.restart import RestartOrder, RestartReport
from core.settings import Home
from core.text import clean_text
from core.trust.private_files import private_folder
from tui.cli.asking import agreed, can_ask
from tui.cli.launch import home_of
from tui.cli.output import print_facts, print_progress, prints_facts
from tui.client import NodeClient
from tui.state.seat import stopped_words

STEP_S = 120.0
AGAIN_S = 1.0


def add_options(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = actions.add_parser("install", help="run the node from boot on, and again after a crash")
    install.add_argument("--dry-run", action="store_true", help="print what it would write and run, and stop")
    after = "options of `macluster node` after --: macluster service install -- --port 4718"
    install.add_argument("node_options", nargs="*", metavar="OPTION", help=after)
    prints_facts(install, install_service)
    remove = actions.add_parser("remove", help="stop the service and remove it")
    remove.add_argument("--dry-run", action="store_true", help="print what it would remove and run, and stop")
    can_ask(remove)
    prints_facts(remove, remove_service)
    again = "start it again at once; `macluster restart` waits for answers"
    started_again = actions.add_parser("restart", help=again)
    can_ask(started_again)
    prints_facts(started_again, restart_service)
    prints_facts(actions.add_parser("status", help="show the state of the service"), print_status)


async def install_service(args: argparse.Namespace) -> None:
    """Write and start the service. On a Mac, `sudo` asks for the password in the terminal."""
    home = home_of(args)
    service = described(home, tuple(args.node_options), dict(os.environ))
    plan = services.launchd_install(service) if _is_mac() else services.systemd_install(service)
    if not args.dry_run:
        if _is_mac():
            check_key(home)
        private_folder(home.root)
        if not _is_mac():
            plan.file.parent.mkdir(parents=True, exist_ok=True)
            plan.file.write_text(plan.text)
        _run(plan.steps)
    notes = ["With FileVault it starts after someone has unlocked this Mac."] if _is_mac() else []
    notes.append("A node that runs now continues; the service takes over when it ends.")
    print_facts(args, msgspec.to_builtins(plan, enc_hook=str), _lines(args, plan, "started", notes))


async def remove_service(args: argparse.Namespace) -> int:
    plan = removal(home_of(args))
    if not args.dry_run:
        if not await _may_stop(args):
            return 1
        remove(plan)
    print_facts(args, msgspec.to_builtins(plan, enc_hook=str), _lines(args, plan, "removed", []))
    return 0


async def restart_service(args: argparse.Namespace) -> int:
    if current().is_installed is False:
        raise UsageError("The service is not installed.", "`macluster restart` restarts a node without it.")
    if not await _may_stop(args):
        return 1
    step = services.LAUNCHD_RESTART if _is_mac() else services.SYSTEMD_RESTART
    _run((step,))
    print_facts(args, msgspec.to_builtins(step), ["The service was started again."])
    return 0


async def _may_stop(args: argparse.Namespace) -> bool:
    """Ask first if the plan of another Mac would lose this one."""
    found = await _report(home_of(args))
    return found is None or not found.led_by or await agreed(args, stopped_words(found))


async def print_status(args: argparse.Namespace) -> int:
    """Print the service's state; status 0 if it runs."""
    state = current()
    words = read_last_run(home_of(args))
    problem = words.problem if words and not state.is_running else None
    report = await _report(home_of(args))
    version = report.version if report else ""
    facts = msgspec.to_builtins(state) | {"read_last_run": msgspec.to_builtins(problem), "version": version}
    lines = [f"The node runs macluster {version}."] if version else []
    print_facts(args, facts, [*state_lines(state, problem), *lines])
    return 0 if state.is_running else 1


async def _report(home: Home) -> RestartReport | None:
    """The report of the node of `home`; None if none answers."""
    try:
        async with NodeClient(home) as client:
            return await client.restart(RestartOrder())
    except NodeError:
        return None


def check_key(home: Home) -> None:
    """Raise IdentityError if a LaunchDaemon can't reach this Mac's key."""
    from core.trust.key_storage import key_place  # a slow import that other commands don't need

    if (home.identity / "identity.pem").exists() and key_place(home.identity) == "keychain":
        what = "This Mac's key is in the keychain, which a service without a desktop session can't open."
        raise IdentityError(what, "Move the key first: `macluster trust key file`.")


def described(home: Home, options: tuple[str, ...], environment: dict[str, str]) -> Service:
    """The service that runs `macluster node` with these options over `home`, as this account."""
    if os.geteuid() == 0 and _is_mac():
        raise UsageError("A node must not run as root.", "Run this without `sudo`; it asks for it where needed.")
    return Service(
        command=(sys.executable, "-m", "tui.cli.main", "--home", str(home.root), "node", *options),
        user=getpass.getuser(),
        user_home=Path.home(),
        home=home.root,
        environment={name: environment[name] for name in KEPT_VARIABLES if environment.get(name)},
    )


def removal(home: Home) -> ServicePlan:
    return services.launchd_remove(home.root) if _is_mac() else services.systemd_remove(Path.home())


def remove(plan: ServicePlan) -> None:
    """Remove the service; raises NodeError."""
    _run(plan.steps)
    plan.file.unlink(missing_ok=True)


def current() -> ServiceState:
    words = services.LAUNCHD_STATUS if _is_mac() else services.SYSTEMD_STATUS
    try:
        ran = subprocess.run(words, capture_output=True, text=True, timeout=STEP_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return services.silent(words, _reason(error))
    read = services.launchd_state if _is_mac() else services.systemd_state
    return read(ran.stdout, ran.returncode, ran.stderr)


def state_lines(state: ServiceState, problem: Problem | None) -> list[str]:
    if state.is_installed is None:
        return [f"It is unknown whether the service is installed: {state.state}."]
    if not state.is_installed:
        return ["Not installed. `macluster service install` installs it."]
    process = f", process {state.pid}" if state.pid else ""
    starts = f", started {state.starts} times" if state.starts and state.starts > 1 else ""
    lines = [f"Installed: {state.state}{process}{starts}."]
    if state.last_exit:
        lines.append(f"Last exit: {state.last_exit}.")
    if state.last_exit in services.NO_PROGRAM:
        lines.append("Its Python may have been removed: `macluster service install` sets it again.")
    if problem is not None:
        lines.append(f"Last error: {problem.what} {problem.fix}".rstrip())
    return [clean_text(line) for line in lines]


def _lines(args: argparse.Namespace, plan: ServicePlan, done: str, notes: list[str]) -> list[str]:
    if not args.dry_run:
        return [f"The service is {done}.", *notes]
    written = [f"Would write {plan.file}:", plan.text] if plan.text else []
    removed = [] if plan.text else [f"Would remove {plan.file}"]
    return [*written, "Would run:", *(f"  {command_line(step)}" for step in plan.steps), *removed]


def _run(steps: Sequence[ServiceStep]) -> None:
    for step in steps:
        print_progress(f"$ {command_line(step)}")
        until = monotonic() + step.again_s
        while (why := _tried(step)) and monotonic() < until:
            sleep(AGAIN_S)
        if why and not step.may_fail:
            what = f"`{command_line(step)}` failed ({why})."
            raise NodeError(what, "Run it by hand for details, then try again.")


def _tried(step: ServiceStep) -> str:
    """Why the step failed, or ""."""
    quiet = subprocess.DEVNULL if step.may_fail else None
    try:
        ran = subprocess.run(
            step.words,
            input=step.given or None,
            text=True,
            stdout=sys.stderr,
            stderr=quiet,
            timeout=STEP_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _reason(error)
    return f"status {ran.returncode}" if ran.returncode else ""


def _reason(error: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, OSError):
        return error.strerror or "it cannot be run"
    return f"no end within {error.timeout:.0f} s"


def _is_mac() -> bool:
    return sys.platform == "darwin"
