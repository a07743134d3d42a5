"""`macluster verify` as a real process."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL

import pytest

from tests.support.waiting import until

ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|[0-9a-f]{2}(:[0-9a-f]{2}){5}|/\w+/")


@pytest.mark.nightly  # `make installed` runs all of it in each check of a change, from the wheel
def test_everything_that_can_be_proved_here_is_and_the_report_holds_nothing_private(
    tmp_path: Path, bonjour: None
) -> None:
    command = [sys.executable, "-m", "tui.cli.main", "--home", str(tmp_path), "verify", "--json", "--host", "127.0.0.1"]
    # in its own session it can't ask the terminal of these tests
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, start_new_session=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    for check in told["checks"]:
        assert set(check) == {"name", "passed", "figure", "skipped_because", "seconds"}
        assert check["passed"] is (check["skipped_because"] is None)
    passed = {check["name"] for check in told["checks"] if check["passed"]}
    assert passed >= {"open files", "Bonjour", "footprint", "slices on the CPU", "hop", "stages"}
    said = json.dumps(told["checks"])
    assert not ADDRESS.search(said)
    assert platform.node() not in done.stdout
    assert getpass.getuser() not in re.findall(r"\w+", said)
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_that_is_closed_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tui.cli.main", "--home", str(tmp_path / "home"), "verify", "--host", "127.0.0.1"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    # nohup would ignore it, as a person then wants
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with subprocess.Popen(command, env=environment, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True) as verify:
        signal.signal(signal.SIGHUP, before)
        asyncio.run(until(lambda: bool(list(tmp_path.glob("macluster-verify-*")))))
        verify.send_signal(signal.SIGHUP)
        assert verify.wait(60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
