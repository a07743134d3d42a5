"""Chip and name of this machine."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Final

SCUTIL: Final = "/usr/sbin/scutil"


def chip_name() -> str:
    """ "M2 Ultra" on a Mac; elsewhere the machine type ("x86_64")."""
    if sys.platform != "darwin":
        return platform.machine()
    asked = subprocess.run(
        ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, timeout=5, check=False
    )
    return parse_brand(asked.stdout) or platform.machine()


def parse_brand(text: str) -> str:
    return text.strip().removeprefix("Apple ").strip()


def computer_name() -> str:
    """The name that the owner gave this machine ("Ada's Mac mini"), else its host name."""
    return given_name() or platform.node().split(".")[0] or "mac"


def given_name() -> str:
    """The computer name set in macOS; "" on other systems, or if no name is set."""
    if sys.platform != "darwin":
        return ""
    asked = subprocess.run([SCUTIL, "--get", "ComputerName"], capture_output=True, text=True, timeout=5, check=False)
    return asked.stdout.strip()
