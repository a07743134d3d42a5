"""The node as a service: the files for launchd and systemd, and the reading of their output."""

from __future__ import annotations

import json
import plistlib
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from core.errors import IdentityError, NodeError
from core.mac.service import (
    Service,
    ServicePlan,
    ServiceState,
    ServiceStep,
    command_line,
    launchd_install,
    launchd_plist,
    launchd_remove,
    launchd_state,
    systemd_install,
    systemd_state,
    systemd_unit,
)
from core.settings import Home
from core.trust.identity import load_or_create
from tui.cli import service
from tui.cli.main import main
from tui.cli.service import check_key, described, remove, state_lines

GOLDEN = Path(__file__).parent
SERVICE = Service(
    command=("/opt/mac luster/bin/python", "-m", "tui.cli.main", "--home", "/Users/anna/.macluster", "node"),
    user="anna",
    user_home=Path("/Users/anna"),
    home=Path("/Users/anna/.macluster"),
    environment={"HF_HOME": "/Volumes/100% models"},
)

# Not recorded on a Mac: written after public reports of `launchctl print` (macOS 12 to 26). Lines that are indented
# twice are not about the service itself; a signal or a reason of macOS replaces the exit code.
RUNNING = """system/macluster.node = {
\tactive count = 1
\tpath = /Library/LaunchDaemons/macluster.node.plist
\ttype = LaunchDaemon
\tstate = running

\tprogram = /usr/local/bin/python3
\targuments = {
\t\t/usr/local/bin/python3
\t\tstate = sleeping
\t}

\tdomain = system
\truns = 3
\tpid = 4242
\timmediate reason = inefficient
\tlast exit code = 1

\tspawn type = interactive (4)
\tendpoints = {
\t\t"x" = {
\t\t\tport = 0x1
\t\t}
\t}
}
"""
EXITED = "\tlast exit code = 1\n"
WAITING = RUNNING.replace("state = running", "state = spawn scheduled").replace("\tpid = 4242\n", "")
STOPPED = RUNNING.replace("state = running", "state = not running").replace("\tpid = 4242\n", "\tjob state = exited\n")
NOT_FOUND = 'Bad request.\nCould not find service "macluster.node" in domain for system'

# Written after systemd's documentation; the output for a missing unit, and without a session, is recorded.
UNIT = "MainPID={}\nNRestarts={}\nResult={}\nExecMainStatus={}\nLoadState=loaded\nActiveState={}\nSubState={}\n"


def stopped(end: str) -> str:
    return STOPPED.replace(EXITED, f"\t{end}\n" if end else "")


def test_the_plist_is_the_golden_one_and_launchd_can_read_it() -> None:
    text = launchd_plist(SERVICE)
    assert text == (GOLDEN / "macluster.node.plist").read_text()
    told = plistlib.loads(text.encode())
    assert told["UserName"] == "anna"
    assert told["EnvironmentVariables"]["HOME"] == "/Users/anna"
    assert (told["KeepAlive"], told["ThrottleInterval"]) == ({"SuccessfulExit": False}, 10)
    assert (told["ProcessType"], told["SoftResourceLimits"]) == ("Interactive", {"NumberOfFiles": 4096})


def test_the_unit_is_the_golden_one() -> None:
    assert systemd_unit(SERVICE) == (GOLDEN / "macluster.service").read_text()
    assert systemd_install(SERVICE).file == Path("/Users/anna/.config/systemd/user/macluster.service")


def installed(state: str, last_exit: str = "", *, starts: int = 3, pid: int | None = None) -> ServiceState:
    is_running = state in ("running", "active (running)")
    return ServiceState(
        is_installed=True, is_running=is_running, state=state, pid=pid, starts=starts, last_exit=last_exit
    )


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        pytest.param(RUNNING, installed("running", "1", pid=4242), id="it runs again"),
        pytest.param(
            RUNNING.replace(EXITED, "\tlast exit code = (never exited)\n").replace("runs = 3", "runs = 1"),
            installed("running", starts=1, pid=4242),
            id="it runs",
        ),
        pytest.param(WAITING, installed("spawn scheduled", "1"), id="it will be started again"),
        pytest.param(stopped("last exit code = 0"), installed("not running"), id="it ended in order"),
        pytest.param(stopped("last exit code = 2"), installed("not running", "2"), id="it ended with a fault"),
        pytest.param(
            stopped("last terminating signal = Killed: 9"), installed("not running", "Killed: 9"), id="a signal"
        ),
        pytest.param(
            stopped("last exit reason = JETSAM_REASON_MEMORY_HIGHWATER"),
            installed("not running", "JETSAM_REASON_MEMORY_HIGHWATER"),
            id="macOS took its memory",
        ),
        pytest.param(
            stopped("last exit code = 78: EX_CONFIG").replace("job state = exited", "job state = spawn failed"),
            installed("not running", "78: EX_CONFIG"),
            id="no such program",
        ),
        pytest.param(stopped(""), installed("not running"), id="nothing is said of its end"),
        pytest.param(
            "\x00garbage", ServiceState(is_installed=True, state="unknown"), id="another format than any that is known"
        ),
    ],
)
def test_what_launchctl_says_is_read(printed: str, expected: ServiceState) -> None:
    assert launchd_state(printed, 0, "") == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param(
            (77, 0, "success", 0, "active", "running"), installed("active (running)", starts=1, pid=77), id="it runs"
        ),
        pytest.param(
            (0, 4, "exit-code", 1, "activating", "auto-restart"),
            installed("activating (auto-restart)", "exit-code, status 1", starts=5),
            id="it will be started again",
        ),
        pytest.param(
            (0, 0, "success", 0, "inactive", "dead"), installed("inactive (dead)", starts=0), id="it ended in order"
        ),
        pytest.param(
            (0, 0, "exit-code", 2, "failed", "failed"),
            installed("failed", "exit-code, status 2", starts=1),
            id="a fault",
        ),
        pytest.param((0, 2, "signal", 9, "failed", "failed"), installed("failed", "signal, status 9"), id="a signal"),
        pytest.param(
            (0, 2, "oom-kill", 9, "failed", "failed"), installed("failed", "oom-kill, status 9"), id="no memory"
        ),
        pytest.param(
            (0, 2, "exit-code", 203, "failed", "failed"),
            installed("failed", "exit-code, status 203"),
            id="no such program",
        ),
    ],
)
def test_what_systemd_says_is_read(told: tuple[object, ...], expected: ServiceState) -> None:
    assert systemd_state(UNIT.format(*told), 0, "") == expected


def test_what_is_not_there_is_told_from_what_nobody_says() -> None:
    nothing = ServiceState(is_installed=False)
    assert launchd_state("", 113, NOT_FOUND) == nothing
    assert systemd_state("LoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\n", 0, "") == nothing
    (told,) = state_lines(nothing, None)
    assert "macluster service install" in told
    for state in (
        launchd_state("", 1, "Could not print service: 1: Operation not permitted\n"),
        systemd_state("", 1, "Failed to connect to bus: No medium found\n"),
    ):
        assert (state.is_installed, state.is_running) == (None, False)
        (told,) = state_lines(state, None)
        assert re.fullmatch(
            r"It is unknown whether the service is installed: `\w+ [\w-]+` failed \((Could|Failed).*\w\)\.", told
        )


def test_a_mac_is_asked_for_the_password_only_where_it_is_needed() -> None:
    words = [command_line(step) for step in (*launchd_install(SERVICE).steps, *launchd_remove(SERVICE.home).steps)]
    assert words[-1] == "sudo rm -f /Library/LaunchDaemons/macluster.node.plist"
    assert all(each.startswith("sudo ") for each in words)
    assert not any(str(SERVICE.home) in each for each in words), "root reads no file that others of this account change"
    assert [step.given for step in launchd_install(SERVICE).steps if step.given] == [launchd_plist(SERVICE)]


def test_an_environment_value_makes_no_line_of_its_own() -> None:
    odd = replace(SERVICE, environment={"HF_HOME": "/a\nExecStartPre=/bin/evil"})
    assert 'Environment="HF_HOME=/a\\nExecStartPre=/bin/evil"' in systemd_unit(odd).splitlines()


def test_state_is_told_in_words() -> None:
    told = state_lines(launchd_state(WAITING, 0, ""), NodeError("Port 4717 is taken.", "End that.").problem)
    assert told == [
        "Installed: spawn scheduled, started 3 times.",
        "Last exit: 1.",
        "Last error: Port 4717 is taken. End that.",
    ]
    gone = launchd_state(stopped("last exit code = 78: EX_CONFIG"), 0, "")
    for state in (gone, systemd_state(UNIT.format(0, 2, "exit-code", 203, "failed", "failed"), 0, "")):
        assert "may have been removed: `macluster service install`" in state_lines(state, None)[-1]


def test_a_service_that_is_still_ending_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation over a running service: launchd refuses for a while, by public reports."""
    assert launchd_install(SERVICE).steps[-1].again_s > 15
    monkeypatch.setattr(service, "AGAIN_S", 0.01)
    tries = tmp_path / "tries"
    busy = ("sh", "-c", f"echo >> {tries}; test $(wc -l < {tries}) = 3")
    remove(ServicePlan(file=tmp_path / "unit", steps=(ServiceStep(busy, again_s=60.0),)))
    assert len(tries.read_text()) == 3


def test_a_step_that_must_not_fail_is_told_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "unit").write_text("x")
    plan = ServicePlan(file=tmp_path / "unit", steps=(ServiceStep(("false",), may_fail=True), ServiceStep(("true",))))
    remove(plan)
    assert not plan.file.exists()
    for words in (("false",), ("no-such-program",)):
        with pytest.raises(NodeError, match=f"`{words[0]}` failed"):
            remove(ServicePlan(file=tmp_path / "unit", steps=(ServiceStep(words),)))


def test_a_dry_run_prints_what_would_be_done_and_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", "/models")
    words = ["--home", str(tmp_path / "h"), "service", "install", "--dry-run", "--json", "--", "--port", "4718"]
    monkeypatch.setattr("sys.argv", ["macluster", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert f"tui.cli.main --home {tmp_path}/h node --port 4718" in told["text"].replace('"', "")
    assert "HF_HOME=/models" in told["text"]
    assert list(tmp_path.iterdir()) == []


def test_only_what_says_where_things_are_is_taken_from_the_environment() -> None:

    kept = described(Home(Path("/h")), (), {"HF_HOME": "/m", "HF_TOKEN": "secret", "XDG_CACHE_HOME": ""})
    assert kept.environment == {"HF_HOME": "/m"}


def test_a_service_needs_a_key_that_it_can_reach(tmp_path: Path) -> None:
    home = Home(tmp_path)
    check_key(home)  # makes a key that can be reached
    load_or_create(home.identity, use_keychain=False)
    check_key(home)
    (home.identity / "passphrase").unlink()  # as in a folder whose passphrase is in the keychain
    with pytest.raises(IdentityError, match="in the keychain") as refused:
        check_key(home)
    assert "macluster trust key file" in refused.value.fix
