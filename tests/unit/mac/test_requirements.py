"""Machines as they describe themselves, and their missing requirements."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core.mac.requirements import Machine, unmet


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        pytest.param(Machine("linux", "x86_64"), "", id="linux"),
        pytest.param(Machine("darwin", "arm64", "", "14.0"), "", id="sonoma"),
        pytest.param(Machine("darwin", "arm64", "", "26.1"), "", id="tahoe"),
        pytest.param(Machine("darwin", "arm64", "", "13.7.8"), "needs macOS 14 (Sonoma) or later", id="ventura"),
        pytest.param(Machine("darwin", "x86_64", "1", "15.3"), "which Rosetta translates", id="rosetta"),
        pytest.param(Machine("darwin", "x86_64", "1", "10.16"), "which Rosetta translates", id="rosetta-old-sdk"),
        pytest.param(Machine("darwin", "x86_64", "0", "15.3"), "Intel processor", id="intel"),
        pytest.param(Machine("darwin", "x86_64", "", "12.7"), "Intel processor", id="intel-without-the-word"),
        pytest.param(Machine("darwin", "arm64", "", ""), "", id="no-version-told"),
        pytest.param(Machine("win32", "AMD64"), "not on win32", id="windows"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(machine: Machine, said: str) -> None:
    found = unmet(machine)
    assert (said in found) if said else found == ""


def test_it_is_looked_at_before_anything_that_was_built_for_a_machine() -> None:
    """A Python for Intel Macs would fail at the first such import, with an error that helps no one."""
    script = """
import sys, platform
platform.machine, sys.platform, platform.mac_ver = lambda: "arm64", "darwin", lambda: ("13.2", (), "")
import tui.cli.main
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr.startswith("macluster: This Mac runs macOS 13.2;")) == (1, True)
