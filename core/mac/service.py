"""The node as a system service (launchd or systemd user units): files, commands and answers; runs nothing itself."""

from __future__ import annotations

import plistlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

LABEL: Final = "macluster.node"
UNIT: Final = "macluster.service"
UNIT_PATH: Final = Path(".config/systemd/user") / UNIT  # in the home folder of the account
IN_SERVICE: Final = "MACLUSTER_SERVICE"  # environment variable of a node that is one
PLIST: Final = Path("/Library/LaunchDaemons") / f"{LABEL}.plist"
_OWN_VARIABLES: Final = {"PYTHONSAFEPATH": "1", IN_SERVICE: "1"}
OPEN_FILES: Final = 4096
RESTART_S: Final = 10
EXIT_S: Final = 15
NO_SUCH_SERVICE: Final = 113  # of launchctl
NO_PROGRAM: Final = ("78: EX_CONFIG", "exit-code, status 203")
# a service doesn't get what shell start-up files set; these say where models and settings are
KEPT_VARIABLES: Final = (
    *("MACLUSTER_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME"),
)


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The service to install."""

    command: tuple[str, ...]
    user: str
    user_home: Path  # home folder of the account
    home: Path  # state folder of the node
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)


class ServiceStep(msgspec.Struct, frozen=True):
    """A command to run."""

    words: tuple[str, ...]
    may_fail: bool = False  # it undoes something that may not exist
    again_s: float = 0.0  # retry for this long
    given: str = ""  # its standard input


class ServicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A file to write and commands to run after it. A command may write the file itself."""

    file: Path
    text: str = ""  # "": remove the file after the steps
    steps: tuple[ServiceStep, ...]


class ServiceState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the service as the system reports it."""

    is_installed: bool | None  # None: the system did not answer; `state` says why
    is_running: bool = False
    state: str = ""
    pid: int | None = None
    starts: int | None = None  # number of starts
    last_exit: str = ""  # how it ended, "" after a clean exit


def launchd_plist(service: Service) -> str:
    """A LaunchDaemon: runs without login or Local Network privacy. Restarts after a crash, not after a clean exit."""
    entries = {
        "Label": LABEL,
        "ProgramArguments": [*service.command],
        "UserName": service.user,
        "EnvironmentVariables": {"HOME": str(service.user_home), **_OWN_VARIABLES, **service.environment},
        "WorkingDirectory": str(service.user_home),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_S,
        "ExitTimeOut": EXIT_S,
        "ProcessType": "Interactive",
        "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
        "StandardErrorPath": str(service.home / "node.stderr"),
    }
    return plistlib.dumps(entries, sort_keys=False).decode()


def launchd_install(service: Service) -> ServicePlan:
    """Install the plist with `sudo`. No file of the account is read for that: another program might change it."""
    text = launchd_plist(service)
    return ServicePlan(
        file=PLIST,
        text=text,
        steps=(
            ServiceStep(("sudo", "launchctl", "bootout", f"system/{LABEL}"), may_fail=True),
            ServiceStep(("sudo", "sh", "-c", f"umask 022; rm -f {PLIST}; cat > {PLIST}"), given=text),
            ServiceStep(("sudo", "launchctl", "enable", f"system/{LABEL}")),
            # launchd refuses while the one before is still ending
            ServiceStep(("sudo", "launchctl", "bootstrap", "system", str(PLIST)), again_s=EXIT_S + 5.0),
        ),
    )


def launchd_remove(home: Path) -> ServicePlan:
    steps = (
        ServiceStep(("sudo", "launchctl", "bootout", f"system/{LABEL}"), may_fail=True),
        ServiceStep(("sudo", "rm", "-f", str(PLIST))),
    )
    return ServicePlan(file=home / PLIST.name, steps=steps)


LAUNCHD_RESTART: Final = ServiceStep(("sudo", "launchctl", "kickstart", "-k", f"system/{LABEL}"))
LAUNCHD_STATUS: Final = ("launchctl", "print", f"system/{LABEL}")
_ENDS: Final = ("last terminating signal", "last exit reason", "last exit code")


def silent(words: tuple[str, ...], why: str) -> ServiceState:
    return ServiceState(is_installed=None, state=f"`{' '.join(words[:2])}` failed ({' '.join(why.split())[:200]})")


def launchd_state(printed: str, status: int, complaint: str) -> ServiceState:
    """Parse `launchctl print`, its exit status and its error output."""
    if status == NO_SUCH_SERVICE:
        return ServiceState(is_installed=False)
    if status:
        return silent(LAUNCHD_STATUS, complaint)
    # what belongs to the service itself is indented once; deeper are its arguments, environment and so on
    lines = (line[1:] for line in printed.splitlines() if line.startswith("\t") and not line.startswith("\t\t"))
    facts = {key.strip(): value.strip() for key, sign, value in (line.partition(" = ") for line in lines) if sign}
    # of the three it tells one: a signal or a reason of macOS takes the place of the code
    ended = next((facts[name] for name in _ENDS if name in facts), "")
    return ServiceState(
        is_installed=True,
        is_running=facts.get("state") == "running",
        state=facts.get("state", "unknown"),
        pid=_number(facts.get("pid", "")),
        starts=_number(facts.get("runs", "")),
        last_exit="" if ended == "0" or ended.startswith("(") else ended,
    )


def systemd_unit(service: Service) -> str:
    """A user unit. Restarts after a crash, `RESTART_S` later or more, but not after wrong use."""
    variables = {**_OWN_VARIABLES, **service.environment}
    lines = [
        "[Unit]",
        "Description=macluster: the node of this machine",
        "StartLimitIntervalSec=0",  # never given up: the delay is what bounds the cost
        "",
        "[Service]",
        f"ExecStart={' '.join(_quoted(word).replace('$', '$$') for word in service.command)}",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in variables.items()),
        "Restart=on-failure",
        "RestartPreventExitStatus=2",
        f"RestartSec={RESTART_S}",
        "RestartSteps=5",
        "RestartMaxDelaySec=60",
        f"TimeoutStopSec={EXIT_S}",
        f"LimitNOFILE={OPEN_FILES}:524288",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def systemd_install(service: Service) -> ServicePlan:
    """Install a unit that runs from boot, even when no user is logged in."""
    return ServicePlan(
        file=service.user_home / UNIT_PATH,
        text=systemd_unit(service),
        steps=(
            ServiceStep(("systemctl", "--user", "daemon-reload")),
            ServiceStep(("systemctl", "--user", "enable", UNIT)),
            ServiceStep(("systemctl", "--user", "restart", UNIT)),
            ServiceStep(("loginctl", "enable-linger", service.user), may_fail=True),
        ),
    )


def systemd_remove(user_home: Path) -> ServicePlan:
    return ServicePlan(
        file=user_home / UNIT_PATH,
        steps=(ServiceStep(("systemctl", "--user", "disable", "--now", UNIT), may_fail=True),),
    )


SYSTEMD_RESTART: Final = ServiceStep(("systemctl", "--user", "restart", UNIT))
SYSTEMD_STATUS: Final = (
    *("systemctl", "--user", "show", UNIT),
    "--property=LoadState,ActiveState,SubState,MainPID,NRestarts,Result,ExecMainStatus",
)


def systemd_state(printed: str, status: int, complaint: str) -> ServiceState:
    """Parse `systemctl show`, its exit status and its error output."""
    if status:
        return silent(SYSTEMD_STATUS, complaint)
    facts = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    if facts.get("LoadState", "not-found") == "not-found":
        return ServiceState(is_installed=False)
    restarts, failed = _number(facts.get("NRestarts", "")), facts.get("Result", "success") != "success"
    active, sub = facts.get("ActiveState", "unknown"), facts.get("SubState", "")
    return ServiceState(
        is_installed=True,
        is_running=active == "active",
        state=active if active == sub or not sub else f"{active} ({sub})",
        pid=_number(facts.get("MainPID", "")) or None,
        starts=None if restarts is None else restarts + (active != "inactive"),
        last_exit=f"{facts['Result']}, status {facts.get('ExecMainStatus', '?')}" if failed else "",
    )


def command_line(step: ServiceStep) -> str:
    return shlex.join(step.words)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _quoted(word: str) -> str:
    """Quote a word of a unit file, where % starts a systemd specifier."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{escaped}"' if not word or set(word) & set(" \t\n\"'\\;") else escaped
