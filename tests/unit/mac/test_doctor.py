"""The check's findings: from recorded system output, from sockets of this machine, and from a node's state."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest

from core.events import Peer
from core.mac import doctor, local_network_permission, multicast
from core.mac.firewall import Firewall, parse_state
from core.mac.interfaces import Interface, interfaces_of, on_subnet
from core.mac.multicast import Echo
from core.node.peers.node_check import bonjour_finding, key_finding, mac_findings, node_finding
from core.requests.checks import FindingState
from core.settings import GB, MIB

WIFI = Interface("en0", "192.168.1.20", "192.168.1.0/24", is_up=True)
LOOPBACK = Interface("lo0", "127.0.0.1", "127.0.0.0/8", is_up=True)
VPN = Interface("utun4", "100.64.0.2", "100.64.0.2/32", is_up=True, kind="tunnel")
PROGRAM = "/opt/python/3.13/Python.app/Contents/MacOS/Python"
DOWN = Interface("en5", "10.0.0.4", "10.0.0.0/24", is_up=False)


class Stats(NamedTuple):
    isup: bool
    speed: int


class FakeAddress(NamedTuple):
    """An address as psutil returns it."""

    family: int
    address: str
    netmask: str | None


@pytest.mark.parametrize(
    ("printed", "state"),
    [
        pytest.param("Firewall is disabled. (State = 0)\n", "off", id="off"),
        pytest.param("Firewall is enabled. (State = 1)\n", "on", id="on"),
        pytest.param(
            "Firewall is blocking all non-essential incoming connections. (State = 2)\n", "closed", id="closed"
        ),
        pytest.param("socketfilterfw: must be root\n", "unknown", id="refused"),
        pytest.param("", "unknown", id="nothing"),
        pytest.param("Firewall is odd. (State = 9)\n", "unknown", id="new"),
    ],
)
def test_the_firewall_is_read_from_what_macos_prints(printed: str, state: Firewall) -> None:
    assert parse_state(printed) == state


def test_every_state_of_the_firewall_says_what_to_do() -> None:
    found: dict[Firewall, FindingState] = {"off": "ok", "on": "warn", "closed": "bad", "unknown": "unknown"}
    for state, expected in found.items():
        finding = doctor.firewall_finding(state, PROGRAM)
        assert finding.state == expected
        assert bool(finding.fix) is (expected != "ok")
        assert (f'--unblockapp "{PROGRAM}"' in finding.fix) is (state == "on"), "each Python is a program of its own"


def test_interfaces_are_read_from_what_psutil_gives() -> None:
    told: Mapping[str, list[Any]] = {
        "lo0": [FakeAddress(socket.AF_INET, "127.0.0.1", "255.0.0.0"), FakeAddress(socket.AF_INET6, "::1", None)],
        "en0": [FakeAddress(socket.AF_INET, "192.168.1.20", "255.255.255.0")],
        "utun4": [FakeAddress(socket.AF_INET, "100.64.0.2", None)],
        "en5": [FakeAddress(socket.AF_INET, "10.0.0.4", "255.255.255.0")],
    }
    assert interfaces_of(told, dict.fromkeys(("lo0", "en0", "utun4"), Stats(isup=True, speed=0)), {}) == (
        LOOPBACK,
        WIFI,
        VPN,
        DOWN,
    )


@pytest.mark.parametrize(
    ("host", "same"),
    [
        pytest.param("192.168.1.77", True, id="neighbour"),
        pytest.param("192.168.2.77", False, id="other-subnet"),
        pytest.param("10.0.0.9", False, id="of-a-cable-that-is-out"),
        pytest.param("studio.local", None, id="name"),
        pytest.param("fe80::1", None, id="ipv6"),
    ],
)
def test_an_address_is_on_one_of_our_subnets_or_not(host: str, same: bool | None) -> None:
    assert on_subnet(host, (WIFI, LOOPBACK, DOWN)) is same


@pytest.mark.parametrize(
    ("found", "host", "state", "says"),
    [
        pytest.param((WIFI, LOOPBACK, VPN), "0.0.0.0", "ok", "en0 192.168.1.20 (192.168.1.0/24)", id="wifi"),
        pytest.param((LOOPBACK, VPN), "0.0.0.0", "warn", "VPN only", id="vpn"),
        pytest.param((LOOPBACK, DOWN), "0.0.0.0", "bad", "on no network", id="none"),
        pytest.param((WIFI, LOOPBACK), "127.0.0.1", "warn", "Loopback only", id="loopback"),
        pytest.param((WIFI, LOOPBACK), "192.168.9.9", "bad", "has the address 192.168.9.9", id="gone"),
    ],
)
def test_where_this_mac_can_be_met(found: tuple[Interface, ...], host: str, state: str, says: str) -> None:
    finding = doctor.network_finding(doctor.usable(found, host), host)
    assert finding.state == state
    assert says in finding.what


@pytest.mark.parametrize(
    ("echoes", "system", "state", "cure"),
    [
        pytest.param({"en0": "heard"}, "darwin", "ok", "", id="heard"),
        pytest.param({"en0": "heard", "utun4": "denied"}, "darwin", "ok", "", id="one-is-enough"),
        pytest.param({"en0": "denied"}, "darwin", "bad", "Local Network", id="permission"),
        pytest.param({"eth0": "denied"}, "linux", "bad", "blocks it", id="rule"),
        pytest.param({"en0": "silent"}, "darwin", "bad", "blocks", id="silent"),
        pytest.param({"en0": "failed"}, "linux", "bad", "by address", id="failed"),
    ],
)
def test_what_became_of_a_word_to_the_group(echoes: dict[str, Echo], system: str, state: str, cure: str) -> None:
    finding = doctor.multicast_finding(echoes, system)
    assert finding.state == state
    assert cure in finding.fix


def test_a_word_to_the_group_comes_back_on_loopback() -> None:
    assert multicast.echo("127.0.0.1") in ("heard", "failed")
    assert multicast.echo("203.0.113.7", 0.01) == "failed", "no interface of this machine has that address"


def test_without_the_local_network_permission_the_send_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def sendto(self, *_: object) -> int:
            raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(socket, "socket", Refused)
    assert multicast.echo("127.0.0.1", 0.01) == "denied"


async def test_a_system_that_says_nothing_ends_no_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: None)
    found = {each.name: each async for each in doctor.examine_machine(tmp_path, GB, 0)}
    assert (found["memory"].state, found["memory"].what) == ("unknown", "The system doesn't say: it gives no answer.")
    assert len(found) > 3


def test_disk_memory_and_programs() -> None:
    assert [doctor.disk_finding(n * GB // 2).state for n in (100, 6, 1)] == ["ok", "warn", "bad"]
    assert doctor.memory_finding(64 * GB, 20 * GB, 54 * GB, 0).state == "ok"
    assert doctor.memory_finding(64 * GB, 50 * GB, 54 * GB, 0).state == "warn"
    assert not doctor.memory_finding(64 * GB, 20 * GB, 54 * GB, 0).fix
    assert doctor.memory_finding(16 * GB, 6 * GB, 7 * GB, 0).fix.startswith("9 GB stay for other programs; `macluster")
    assert doctor.programs_finding("3.11.7", {"mlx": "0.32.4"}).what.endswith(", Python 3.11.7, mlx 0.32.4.")
    assert doctor.programs_finding("3.11.7", {"mlx": ""}).state == "bad"


def test_a_gpu_that_may_use_less_than_the_budget_is_told_with_the_setting_of_macos() -> None:
    told = doctor.memory_finding(64 * GB, 20 * GB, 54 * GB, 51 * GB)
    assert (told.state, told.what) == ("warn", "macOS limits the GPU, and so every model, to 51 of 64 GB.")
    assert f"iogpu.wired_limit_mb={54 * GB // MIB}`" in told.fix
    assert doctor.memory_finding(64 * GB, 20 * GB, 48 * GB, 51 * GB).state == "ok"


def test_folders_of_models_that_macos_closes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> list[str]:
        raise PermissionError(errno.EPERM, "Operation not permitted") if folder.name == "disk" else FileNotFoundError

    monkeypatch.setattr(os, "listdir", refuse)
    disk = tmp_path / "disk"
    assert doctor.unreadable([disk, tmp_path / "gone"]) == [disk]
    found = doctor.models_finding([disk], PROGRAM)
    assert found
    assert (str(disk) in found.what, f"Full Disk Access: add {PROGRAM}" in found.fix) == (True, True)
    assert doctor.models_finding([], PROGRAM) is None


@pytest.mark.parametrize(
    ("macos", "build", "warns"),
    [("26.2", "15.0", True), ("26.2", "26.0", False), ("15.6", "15.0", False), ("", "", False), ("26.2", "", False)],
)
def test_the_slow_build_of_mlx_is_told(macos: str, build: str, warns: bool) -> None:
    found = doctor.build_finding(macos, build)
    assert (found is not None) is warns
    assert found is None or found.what.startswith("MLX is the build for macOS 15, this Mac runs 26")


def test_the_build_of_mlx_is_in_the_tag_of_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-macosx_15_0_arm64\n"
    monkeypatch.setattr(doctor, "distribution", lambda _: SimpleNamespace(read_text=lambda _: wheel))
    assert doctor.metal_build() == "15.0"


def test_a_hard_limit_of_256_open_files_is_told_with_its_cure() -> None:
    told = doctor.files_finding(256)
    assert (told.state, told.what) == ("bad", "A process can open 256 files, 1024 are needed.")
    assert "ulimit -H -n" in told.fix
    assert doctor.files_finding(4096).state == "ok"


@pytest.mark.slow
def test_models_can_be_run_where_256_open_files_are_allowed() -> None:
    code = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, 256)); import core, mlx_lm.utils; print('it runs')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout == "it runs\n", ran.stderr


def mac(name: str, **fields: Any) -> Peer:
    return Peer(device_id=name * 26, name=name, **fields)


def test_each_other_mac_has_a_finding_those_with_trouble_first() -> None:
    linked = mac("a", state="connected", trust="paired", address="192.168.1.7:4717")
    stranger = mac("b", address="192.168.1.8:4717")
    far = mac("c", state="lost", trust="paired", address="10.9.0.3:4717", problem="10.9.0.3:4717 does not answer.")
    older = mac("d", state="lost", trust="paired", address="192.168.1.9:4717", problem="d speaks version 2.")
    named = mac("e", trust="paired", address="studio.local:4717")
    found = {f.name: f for f in mac_findings((linked, stranger, far, older, named), (WIFI, LOOPBACK))}
    assert list(found) == ["c", "d", "e", "a", "b"]
    assert found["a"].what == "Linked, at 192.168.1.7:4717."
    assert "press p" in found["b"].fix
    assert "none of this Mac's networks (192.168.1.0/24)" in found["c"].fix
    assert found["d"].what == "d speaks version 2."
    assert (found["d"].state, found["e"].state) == ("bad", "warn")
    assert mac_findings((), ())[0].what == "None was found."


def test_the_node_its_key_and_bonjour() -> None:
    assert node_finding("0.0.0.0:4717", "0.0.0.0").what == "It listens on all addresses of this Mac, port 4717."
    assert node_finding("127.0.0.1:9", "127.0.0.1").what == "It listens at 127.0.0.1:9."
    assert node_finding("", "127.0.0.1").state == "bad"
    assert bonjour_finding(True, is_on=True, sees_itself=True).state == "ok"
    assert bonjour_finding(True, is_on=True, sees_itself=False).state == "warn"
    assert bonjour_finding(True, is_on=False, sees_itself=False).state == "bad"
    assert bonjour_finding(False, is_on=False, sees_itself=False).state == "warn"
    assert key_finding("keychain").state == "ok"
    assert key_finding("file permissions").state == "warn"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        pytest.param(
            {"TERM_PROGRAM": "Apple_Terminal", "TERM_PROGRAM_VERSION": "455"}, "Terminal needs no", id="Terminal"
        ),
        pytest.param({"TERM_PROGRAM": "iTerm.app"}, "Allow iTerm2 in System Settings", id="iTerm2"),
        pytest.param({"TERM_PROGRAM": "ghostty"}, "Allow Ghostty in", id="Ghostty"),
        pytest.param({"TERM_PROGRAM": "vscode"}, "Allow Visual Studio Code in", id="VS Code"),
        pytest.param({"TERM_PROGRAM": "\x1b[2J"}, "Allow this terminal in", id="unknown"),
        pytest.param({"TERM": "xterm-kitty"}, "Allow this terminal in", id="says nothing"),
        pytest.param({"SSH_CONNECTION": "10.0.0.2 50000 10.0.0.1 22"}, "over SSH needs no", id="SSH"),
        pytest.param(
            {"TERM_PROGRAM": "tmux", "TMUX": "/tmp/tmux-501/default,812,0"}, "or start it outside of tmux", id="tmux"
        ),
        pytest.param({"TMUX": "a", "SSH_CONNECTION": "b"}, "Allow tmux in", id="tmux over SSH"),
    ],
)
def test_who_needs_the_local_network_permission(environment: dict[str, str], said: str) -> None:
    assert said in local_network_permission.advice(environment)
