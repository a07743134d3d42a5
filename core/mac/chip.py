"""Which chip this machine has."""

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
    """The short name in what `sysctl -n machdep.cpu.brand_string` prints ("Apple M2 Ultra")."""
    return text.strip().removeprefix("Apple ").strip()


def computer_name() -> str:
    """The name that the owner gave this machine: "Ada's Mac mini" on a Mac, where the network knows another one."""
    return given_name() or platform.node().split(".")[0] or "mac"


def given_name() -> str:
    """What macOS says the owner calls this Mac; "" where it says nothing, and elsewhere."""
    if sys.platform != "darwin":
        return ""
    asked = subprocess.run([SCUTIL, "--get", "ComputerName"], capture_output=True, text=True, timeout=5, check=False)
    return asked.stdout.strip()
