"""`macluster verify`: running, reporting and keeping data private; each check on recorded or simulated machines."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import msgspec
import pytest
from rich.color import ColorSystem

from core.errors import LinkLost
from core.mac.prevent_sleep import parse_assertions
from core.mac.service import ServiceState
from core.requests.checks import PathFigures, SpeedResult
from core.settings import Home
from core.verify import machine
from core.verify.check import Check, CheckResult, Outcome, Report, failed, passed, skipped
from core.verify.machine import kind_of
from core.verify.running import outcome_of, run_checks
from core.verify.slices import compared
from core.worker.proof import EXACT, HALF
from tests.support.waiting import until
from tui.cli import paired_checks, terminal_checks
from tui.cli.verify_report import all_checks, line_of, service_outcome, summary
from tui.control.themes import DARK

ROOT = Path(__file__).parents[3]
NEVER_SET = threading.Event()
ASSERTIONS = """2026-11-23 08:00:00 +0000
Assertion status system-wide:
   PreventUserIdleSystemSleep     1
Listed by owning process:
   pid 345(powerd): [0x0001000c00019000] 01:00:00 PreventUserIdleSystemSleep named: "Powerd"
   pid 4242(caffeinate): [0x0000abcd00018f7d] 00:00:02 PreventUserIdleSystemSleep named: "caffeinate command-line tool"
   pid 4242(caffeinate): [0x0000abcd00078f7e] 00:00:02 PreventSystemSleep named: "caffeinate command-line tool"
   pid 4343(caffeinate): [0x0000abcd00058f7d] 00:10:00 PreventUserIdleDisplaySleep named: "caffeinate"
"""


async def ran(
    *runs: Callable[[threading.Event], Outcome], limit_s: float = 30.0, within_s: float = 60.0
) -> list[CheckResult]:
    checks = [Check(f"check {number}", "it works", run, limit_s) for number, run in enumerate(runs)]
    return [each async for each in run_checks(checks, within_s)]


async def test_a_check_that_breaks_fails_by_the_kind_of_its_error_alone_and_the_others_go_on() -> None:
    def private(_: threading.Event) -> Outcome:
        raise LinkLost("Ada's Mac at 192.168.1.7 is gone.")

    def defect(_: threading.Event) -> Outcome:
        raise KeyError("/Users/ada")

    found = await ran(private, defect, lambda _: skipped("not a Mac"), lambda _: passed("1"))
    assert [(each.failed, each.figure) for each in found] == [
        (True, "ended with LinkLost"),
        (True, "a defect: KeyError"),
        (False, ""),
        (False, "1"),
    ]


async def test_a_check_that_does_not_end_fails_and_is_told_that_nobody_waits() -> None:
    told = threading.Event()

    def waits(stop: threading.Event) -> Outcome:
        stop.wait(60)
        told.set()
        return passed("")

    (found,) = await ran(waits, limit_s=-1.0)
    assert found.failed
    assert "not done within" in found.figure
    await until(told.is_set)


async def test_what_there_is_no_time_for_is_skipped() -> None:
    (found,) = await ran(lambda _: passed("1"), within_s=0.0)
    assert found.skipped_because
    assert not found.failed


def test_what_a_child_says_is_its_outcome_and_a_child_that_crashed_is_a_failure() -> None:
    said = passed("3 of 3")
    assert outcome_of(0, msgspec.json.encode(said)) == said
    assert outcome_of(1, msgspec.json.encode(LinkLost("Ada's").problem)) == failed("ended with LinkLost")
    assert outcome_of(-11, b"") == failed("its process ended with status -11")
    assert outcome_of(0, b"{") == failed("its process ended with status 0")


def test_a_report_is_told_as_text_that_says_what_a_failed_check_was_to_prove() -> None:
    checks = [
        CheckResult(name="hop", passed=True, figure="2 µs", seconds=1.0),
        CheckResult(name="keychain", skipped_because="not a Mac", seconds=0.0),
        CheckResult(name="Bonjour", figure="silence", seconds=5.0),
    ]
    lines = [line_of(each, "it works") for each in checks]
    assert lines == [
        "✓ passed  hop: 2 µs (1.0 s)",
        "– skipped keychain: not a Mac (0.0 s)",
        "✗ FAILED  Bonjour: silence (it checks that it works) (5.0 s)",
    ]
    told = summary(Report(version="1", system={}, checks=checks, seconds=6.2))
    assert told.startswith("1 passed, 1 failed, 1 skipped, in 6 s.")


def test_the_readme_names_for_each_line_a_check_that_exists() -> None:
    readme = (ROOT / "core" / "verify" / "README.md").read_text("utf-8")
    table = readme.partition("## Not yet seen on a Mac")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")][2:]
    shown = [checks for _, checks in rows if not checks.startswith("none:")]
    named = {name for checks in shown for name in re.findall(r"`([^`]+)`", checks) if not name.startswith("--")}
    checks = [check.name for check in all_checks(Home(Path()), "0.0.0.0", "")]
    assert len(set(checks)) == len(checks)
    assert named == set(checks)
    assert all("`" in checks for checks in shown)


@pytest.mark.parametrize(
    ("found", "tolerance", "is_right"),
    [
        pytest.param([[1.0, 8.0, 2.0], [4.0, 1.0, 2.0]], EXACT, True, id="same"),
        pytest.param([[1.0, 8.0, 2.0], [4.01, 1.0, 2.0]], EXACT, False, id="beyond-rounding-on-a-CPU"),
        pytest.param([[1.0, 8.0, 2.0], [4.01, 1.0, 2.0]], HALF, True, id="rounding-on-a-GPU"),
        pytest.param([[1.0, 8.0, 2.0], [2.0, 1.0, 4.0]], HALF, False, id="another-token"),
        pytest.param([[1.0, 8.0, 2.0], [4.0, 1.0, float("nan")]], HALF, False, id="no-number"),
    ],
)
def test_logits_are_compared_within_a_tolerance(found: list[list[float]], tolerance: float, is_right: bool) -> None:
    expected = mx.array([[1.0, 8.0, 2.0], [4.0, 1.0, 2.0]])
    assert compared(expected, mx.array(found), tolerance).passed is is_right


def test_a_token_that_differs_is_excused_only_where_two_are_nearly_the_same() -> None:
    near, far = mx.array([[8.0, 7.9, 1.0]]), mx.array([[7.9, 8.0, 1.0]])
    assert compared(near, far, HALF).passed
    assert not compared(near, far, EXACT).passed


def test_assertions_are_read_from_what_pmset_prints() -> None:
    assert parse_assertions(ASSERTIONS) == {4242}
    assert parse_assertions("") == frozenset()


@pytest.mark.parametrize(
    ("listed", "outcome"),
    [
        pytest.param([{1}, {1, 2}, {1}], passed("macOS lists the assertion while it is held, and not after"), id="on"),
        pytest.param([{1}, {1}], failed("macOS lists no assertion"), id="never"),
        pytest.param([{1}, {1, 2}, {1, 2}], failed("the assertion stays after its release"), id="for-ever"),
    ],
)
def test_staying_awake_is_what_macos_says_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listed: list[set[int]], outcome: Outcome
) -> None:
    """caffeinate and pmset are simulated."""
    said = iter(listed)
    last: set[int] = set()

    def awake_by() -> set[int]:
        nonlocal last
        last = next(said, last)
        return last

    monkeypatch.setattr(machine, "CAFFEINATE", str(tmp_path))
    monkeypatch.setattr(machine, "awake_by", awake_by)
    monkeypatch.setattr(machine, "SETTLED_S", 0.0)
    assert machine.awake(NEVER_SET) == outcome


@pytest.mark.parametrize(
    ("port", "kind"),
    [
        ("Thunderbolt (bridge0)", "Thunderbolt"),
        ("Wi-Fi (en0)", "Wi-Fi"),
        ("Ethernet (en7)", "Ethernet"),
        ("Ada's iPhone (en9)", "another kind of port"),
        ("en5", "another kind of port"),
        ("utun4", "tunnel"),
    ],
)
def test_a_port_is_told_by_its_kind(port: str, kind: str) -> None:
    assert kind_of(port) == kind


def test_the_link_to_another_mac_is_told_without_names() -> None:
    found = SpeedResult(
        source="a" * 26, target="b" * 26, rtt_s=0.0004, rtt_min_s=0.0003, round_trips=9, loaded_rtt_s=0.001, frames=9,
        bytes=900_000_000, seconds=1.0, via="Thunderbolt (bridge0)",
    )  # fmt: skip
    said = "0.40 ms round trip, 900 MB/s sealed, by Thunderbolt"
    assert paired_checks.outcome(found) == passed(said)
    paths = (PathFigures(kind="Thunderbolt", rtt_s=0.0004, bytes_per_s=5 * 10**8), PathFigures(kind="", rtt_s=0.004))
    every = "Thunderbolt 0.40 ms, 4000 Mbit/s; another network 4.00 ms"
    assert paired_checks.outcome(msgspec.structs.replace(found, paths=paths)) == passed(f"{said}; {every}")


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        pytest.param(
            ServiceState(is_installed=False), skipped("no service is installed (macluster service install)"), id="none"
        ),
        pytest.param(
            ServiceState(is_installed=None, state="`launchctl print` failed (Ada said no)"),
            skipped("the system does not report whether a service is installed"),
            id="nobody says",
        ),
        pytest.param(
            ServiceState(is_installed=True, is_running=True, state="running", pid=7, starts=2),
            passed("it runs; starts: 2"),
            id="it runs",
        ),
        pytest.param(
            ServiceState(is_installed=True, state="not running", starts=1, last_exit="1"),
            passed("it does not run; starts: 1"),
            id="it does not",
        ),
        pytest.param(
            ServiceState(is_installed=True, state="unknown"),
            failed("the report lacks the state, the process or the number of starts"),
            id="another format",
        ),
    ],
)
def test_what_the_system_says_of_a_service_must_be_understood(state: ServiceState, outcome: Outcome) -> None:
    assert service_outcome(state) == outcome


async def test_without_a_name_no_link_is_measured() -> None:
    found = await ran(*(check.run for check in paired_checks.paired_checks(Home(Path()), "")))
    assert [each.skipped_because for each in found] == ["no other Mac was named (--with MAC)"] * 2


async def test_with_a_name_and_no_node_the_link_fails_and_the_person_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await ran(*(check.run for check in paired_checks.paired_checks(Home(tmp_path), "mini")))
    assert [each.figure for each in found] == ["ended with NodeUnreachable"] * 2
    assert "No node answers on this Mac." in capsys.readouterr().err


def test_colours_that_fall_together_are_named() -> None:
    assert terminal_checks.alike(DARK, ColorSystem.EIGHT_BIT) == []
    assert terminal_checks.alike(DARK, ColorSystem.TRUECOLOR) == []
    assert ("stage-3", "stage-4") in terminal_checks.alike(DARK, ColorSystem.WINDOWS)


def test_how_many_colours_there_are_is_what_the_terminal_says() -> None:
    assert terminal_checks.colours_of({"COLORTERM": "truecolor"}) is ColorSystem.TRUECOLOR
    assert terminal_checks.colours_of({"TERM_PROGRAM": "Apple_Terminal"}) is ColorSystem.EIGHT_BIT


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        pytest.param(b"\x1b[?62;22;52c", ["62", "22", "52"], id="takes-text"),
        pytest.param(b"x\x1b[?1;2c", ["1", "2"], id="behind-a-key"),
        pytest.param(b"", [], id="silent"),
    ],
)
def test_a_terminal_is_asked_what_it_can_do(said: bytes, answer: list[str]) -> None:
    """A real terminal line, with the test at its other end."""
    outer, inner = os.openpty()
    try:

        def reply() -> None:
            assert os.read(outer, 16) == terminal_checks.ASK
            os.write(outer, said)

        replying = threading.Thread(target=reply)
        replying.start()
        found = terminal_checks.asked(inner, 30.0 if said else 0.1)
        replying.join()
    finally:
        os.close(outer)
        os.close(inner)
    assert terminal_checks.attributes(found) == answer
