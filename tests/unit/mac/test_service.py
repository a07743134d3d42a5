"""The node as a service: what is written for launchd and systemd, and what is read of what they say."""

from __future__ import annotations

import json
import plistlib
from pathlib import Path

import pytest

from core.errors import IdentityError, NodeError
from core.mac.service import (
    Plan,
    Service,
    ServiceState,
    Step,
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

# Written by the format in which `launchctl print` tells of a daemon, not recorded on a Mac; what is indented twice is
# not about the service itself. What `systemctl show` tells below is written too, by the names of its properties.
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
WAITING = RUNNING.replace("state = running", "state = spawn scheduled").replace("\tpid = 4242\n", "")
FIRST = RUNNING.replace("= 3", "= 1").replace("last exit code = 1", "last exit code = (never exited)")


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


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (RUNNING, ServiceState(is_installed=True, is_running=True, state="running", pid=4242, starts=3, last_exit="1")),
        (WAITING, ServiceState(is_installed=True, state="spawn scheduled", starts=3, last_exit="1")),
        (FIRST, ServiceState(is_installed=True, is_running=True, state="running", pid=4242, starts=1)),
        ("\x00garbage", ServiceState(is_installed=True, state="unknown")),
    ],
)
def test_what_launchctl_says_is_read(printed: str, expected: ServiceState) -> None:
    assert launchd_state(printed, found=True) == expected
    assert launchd_state('Could not find service "macluster.node" in domain for system', found=False) == ServiceState(
        is_installed=False
    )


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            "MainPID=77\nNRestarts=0\nResult=success\nExecMainStatus=0\nLoadState=loaded\nActiveState=active\nSubState=running\n",
            ServiceState(is_installed=True, is_running=True, state="active (running)", pid=77, starts=1),
        ),
        (
            "MainPID=0\nNRestarts=4\nResult=exit-code\nExecMainStatus=1\nLoadState=loaded\nActiveState=activating\n"
            "SubState=auto-restart\n",
            ServiceState(
                is_installed=True, state="activating (auto-restart)", starts=5, last_exit="exit-code, status 1"
            ),
        ),
        ("LoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\n", ServiceState(is_installed=False)),
        ("", ServiceState(is_installed=False)),
    ],
)
def test_what_systemd_says_is_read(printed: str, expected: ServiceState) -> None:
    assert systemd_state(printed) == expected


def test_a_mac_is_asked_for_the_password_only_where_it_is_needed() -> None:
    words = [command_line(step) for step in (*launchd_install(SERVICE).steps, *launchd_remove(SERVICE.home).steps)]
    assert words[-1] == "sudo rm -f /Library/LaunchDaemons/macluster.node.plist"
    assert all(each.startswith("sudo ") for each in words)
    assert launchd_install(SERVICE).file.parent == SERVICE.home, "what is written without it is this account's"


def test_state_is_told_in_words() -> None:
    told = state_lines(launchd_state(WAITING, found=True), NodeError("Port 4717 is taken.", "End that.").problem)
    assert told == [
        "Installed: spawn scheduled, started 3 times.",
        "It ended last with: 1.",
        "Its last words: Port 4717 is taken. End that.",
    ]
    (nothing,) = state_lines(ServiceState(is_installed=False), None)
    assert "macluster service install" in nothing


def test_a_step_that_must_not_fail_is_told_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "unit").write_text("x")
    plan = Plan(file=tmp_path / "unit", steps=(Step(("false",), may_fail=True), Step(("true",))))
    remove(plan)
    assert not plan.file.exists()
    for words in (("false",), ("no-such-program",)):
        with pytest.raises(NodeError, match=f"`{words[0]}` failed"):
            remove(Plan(file=tmp_path / "unit", steps=(Step(words),)))


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
    check_key(home)  # it makes one that it can
    load_or_create(home.identity, use_keychain=False)
    check_key(home)
    (home.identity / "passphrase").unlink()  # as in a folder whose passphrase is in the keychain
    with pytest.raises(IdentityError, match="in the keychain") as refused:
        check_key(home)
    assert "macluster trust key file" in refused.value.fix
