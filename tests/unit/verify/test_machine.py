"""The description of a machine by `macluster verify`, from recorded output of machines."""

from __future__ import annotations

import sys
import threading
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from core.mac import network_kind
from core.mac.interfaces import Interface
from core.mac.rdma import RdmaSeen
from core.mac.requirements import Machine
from core.verify import checks, machine
from core.verify.check import NOT_A_MAC, Outcome, failed, passed

ARM = Machine("darwin", "arm64", "", "26.1")
WIFI = Interface("en0", "192.168.1.7", "192.168.1.0/24", True, "Wi-Fi", 1200)
CABLE = Interface("en2", "169.254.10.1", "169.254.0.0/16", True, "Thunderbolt")
ALONE = Interface("en5", "169.254.3.4", "169.254.0.0/16", True, "Ethernet")
VIRTUAL = Interface("bridge100", "192.168.64.1", "192.168.64.0/24", True)
OWN = Interface("lo0", "127.0.0.1", "127.0.0.0/8", True)


@pytest.mark.parametrize(
    ("found", "host", "outcome"),
    [
        pytest.param(
            [OWN, VIRTUAL, ALONE, CABLE, CABLE._replace(address="fe80::1", subnet="fe80::/10"), WIFI],
            "0.0.0.0",
            passed(
                "Wi-Fi of 1200 Mbit/s, Thunderbolt; left out, of virtual machines: 1; "
                "left out, link-local address only: 1"
            ),
            id="every kind",
        ),
        pytest.param(
            [WIFI, CABLE], "169.254.10.1", passed("Thunderbolt; left out, not selected by --host: 1"), id="one"
        ),
        pytest.param([WIFI._replace(is_up=False), OWN, VIRTUAL], "0.0.0.0", failed("no port is up"), id="none"),
    ],
)
def test_ports_are_told_by_their_kinds_and_why_others_are_left_out(
    found: list[Interface], host: str, outcome: Outcome
) -> None:
    assert machine.ports_outcome(found, host) == outcome


def test_what_a_mac_prints_of_rdma_must_be_understood() -> None:
    listed = " rdma_en2 \t1\n rdma_en5 \t2\n"
    assert machine.rdma_outcome(RdmaSeen("26.2", "Enabled\n", listed)) == passed("enabled; devices: 2")
    assert "neither enabled nor disabled" in machine.rdma_outcome(RdmaSeen("26.2", "on\n", listed)).figure
    assert machine.rdma_outcome(RdmaSeen()) == NOT_A_MAC


@pytest.mark.parametrize("seen", [RdmaSeen("15.7"), RdmaSeen("26.2", "disabled\n"), RdmaSeen("26.2", "enabled\n")])
def test_a_mac_without_rdma_says_why(seen: RdmaSeen) -> None:
    assert machine.rdma_outcome(seen).skipped_because


def test_what_the_clock_of_the_node_did_in_sleep() -> None:
    slept = "it slept for 60 s since it started"
    assert machine.sleep_outcome(160.0, 100.0, 100.0) == passed(f"{slept}, and the node's clock stood still")
    assert machine.sleep_outcome(160.0, 100.0, 160.0) == failed(f"{slept}, but the node's clock ran on")
    assert machine.sleep_outcome(100.0, 100.0, 100.0).skipped_because


def test_the_name_of_a_mac_is_read_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    for given, outcome in (
        ("Ada's Mac", passed("scutil reports it (left out here)")),
        ("", failed("scutil reports none")),
    ):
        monkeypatch.setattr(machine, "given_name", lambda said=given: said)
        assert machine.name(threading.Event()) == outcome


def test_the_program_that_the_firewall_asks_about_is_told_without_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "this_program", lambda: "/Users/ada/.local/bin/python3.13")
    monkeypatch.setattr(machine, "firewall", lambda: "on")
    told = machine.incoming(threading.Event())
    assert told == passed("On: python3.13 must be allowed. See `macluster doctor`.")


def test_a_list_of_ports_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(network_kind, "LISTED", tmp_path / "none")
    assert machine.ports("0.0.0.0", threading.Event()).figure.endswith("NetworkInterfaces.plist can't be read")


def test_without_the_local_network_permission_the_advice_is_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "echo", lambda _: "denied")
    monkeypatch.setattr(sys, "platform", "darwin")
    for name, value in {"TERM_PROGRAM": "iTerm.app", "TMUX": "", "SSH_CONNECTION": ""}.items():
        monkeypatch.setenv(name, value)
    told = machine.silence_words([WIFI])
    assert "denied 1" in told
    assert "Allow iTerm2 in" in told


@pytest.mark.parametrize(
    ("wrote", "left", "by"),
    [
        ("uv", "uv-receipt.toml", "uv tool"),
        ("pip", "pipx_metadata.json", "pipx"),
        ("uv\n", "", "uv"),
        ("/home/ada", "", "another program"),
    ],
)
def test_by_what_it_was_installed(wrote: str, left: str, by: str, tmp_path: Path) -> None:
    said = f"a wheel, installed by {by}; this Python runs as arm64"
    assert checks.outcome(found_in(tmp_path, wrote, left), tmp_path, ARM) == passed(said)


def test_what_was_not_installed_or_cannot_run_is_said(tmp_path: Path) -> None:
    found = found_in(tmp_path, "pip", "")
    assert "needs macOS 14" in checks.outcome(found, tmp_path, ARM._replace(macos="13.7")).figure
    (tmp_path / "macluster-1.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "x"}')
    assert checks.outcome(found, tmp_path, ARM).skipped_because
    (tmp_path / "macluster-1.dist-info" / "WHEEL").unlink()
    (tmp_path / "macluster-1.dist-info" / "direct_url.json").unlink()
    assert checks.outcome(found, tmp_path, ARM).skipped_because, "an egg-info beside the sources"


def found_in(folder: Path, wrote: str, left: str) -> Distribution:
    """The installation found in `folder`."""
    (written := folder / "macluster-1.dist-info").mkdir()
    (written / "INSTALLER").write_text(wrote)
    (written / "WHEEL").touch()
    if left:
        (folder / left).touch()
    return Distribution.at(written)
