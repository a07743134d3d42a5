"""The reason why no node runs: the record of the last run, and its text."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from core.errors import IdentityError, NodeUnreachable, Problem
from core.mac.port_holder import holder_words
from core.node.base.last_run import (
    TEXT_LIMIT,
    LastRun,
    read_last_run,
    record_led,
    record_waiting,
    recording_run,
    unreachable,
)
from core.settings import Home
from core.trust.private_files import write_private
from tests.support.home_files import in_format
from tui.own_node import OwnNode


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_an_end_in_order_leaves_no_words(home: Home) -> None:
    with recording_run(home):
        assert read_last_run(home) is not None
        assert "does not answer yet" in unreachable(home).what, "it is this process, which runs"
    assert read_last_run(home) is None
    assert unreachable(home).fix == NodeUnreachable.fix_by_default


def test_a_killed_node_leaves_the_model_that_it_led(home: Home) -> None:
    with recording_run(home):
        record_led(home, "acme/toy")
        killed = home.last_run.read_bytes()
    assert read_last_run(home) is None, "one that ends in order leaves none"
    write_private(home.last_run, killed)
    with recording_run(home):
        assert (again := read_last_run(home))
        assert again.led == "acme/toy"
        record_led(home, "")
        assert (unloaded := read_last_run(home))
        assert not unloaded.led


def test_an_error_is_kept_with_its_cure_in_a_small_private_file(home: Home) -> None:
    with pytest.raises(IdentityError), recording_run(home):
        raise IdentityError("The keychain is locked.\x1b[2J" + "x" * 10_000, "Unlock it.")
    told = unreachable(home)
    assert "The keychain is locked.[2J" in told.what
    assert (told.fix, len(told.what) < TEXT_LIMIT + 100) == ("Unlock it.", True)
    assert home.last_run.stat().st_mode & 0o777 == 0o600


def test_what_macos_asks_is_said_while_the_node_waits(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with recording_run(home):
        record_waiting(home, is_waiting=True)
        told = unreachable(home)
        assert "does not answer yet. macOS asks, on the screen of this Mac" in told.what
        assert "macluster trust key file" in told.fix
        assert "macOS asks" in capsys.readouterr().err
        record_waiting(home, is_waiting=False)
        assert "macOS asks" not in unreachable(home).what


def test_a_defect_is_kept_by_its_place_without_its_words(home: Home) -> None:
    with pytest.raises(ValueError, match="my prompt"), recording_run(home):
        raise ValueError("my prompt")
    assert "ValueError at" in unreachable(home).what
    assert "my prompt" not in home.last_run.read_text()


def test_a_node_that_was_killed_has_ended_without_a_word(home: Home) -> None:
    nobody = next(pid for pid in range(2**22 - 1, 0, -1) if not psutil.pid_exists(pid))
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as unnoticed:
        assert unnoticed.stdout
        unnoticed.stdout.read()
        while psutil.Process(unnoticed.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        younger = LastRun(at=0.0, pid=os.getpid())
        for words in (LastRun(at=time.time(), pid=nobody), LastRun(at=time.time(), pid=unnoticed.pid), younger):
            home.last_run.write_bytes(in_format(msgspec.json.encode(words)))
            home.last_run.chmod(0o600)
            assert "was killed" in unreachable(home).what


@pytest.mark.parametrize("damage", [b"", b"{", b'{"at": 1.0, "pid": 1}', in_format(b'{"at": "x"}'), b"\xff"])
def test_a_damaged_file_says_nothing(home: Home, damage: bytes) -> None:
    home.last_run.write_bytes(damage)
    home.last_run.chmod(0o600)
    assert unreachable(home).what == "No node answers on this Mac."


@pytest.mark.parametrize(
    ("name", "command", "said"),
    [
        ("nginx", ["nginx", "-g"], "nginx (pid 7)"),
        ("python3.11", ["py", "-m", "core.node", "--home", "/h"], "another macluster node (pid 7, /h)"),
        ("python3.11", ["py", "-m", "core.node"], "another macluster node (pid 7)"),
    ],
)
def test_who_has_a_port_is_named(name: str, command: list[str], said: str) -> None:
    assert holder_words(7, name, command) == said


def test_what_a_process_calls_itself_does_nothing_to_the_terminal() -> None:
    assert holder_words(7, "\x1b]0;x\x07a\nb", []).isprintable()
    assert holder_words(7, "python", ["py", "core.node", "--home", "/\x1b[2J"]).isprintable()


def test_a_home_that_is_a_file_is_told_by_the_one_who_starts_the_node(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    own = OwnNode(Home(tmp_path / "file"))
    own.start()
    assert own.trouble == Problem(
        kind="IdentityError",
        what=f"{tmp_path}/file is not the kind of file that it should be.",
        fix=f"Move it away: `mv {tmp_path}/file {tmp_path}/file.old`.",
    )
    assert not own.is_running
