"""Chip and name of this machine."""

from __future__ import annotations

import platform
import sys
from typing import Final

from core.mac.system_command import said

SCUTIL: Final = "/usr/sbin/scutil"


def chip_name() -> str:
    """ "M2 Ultra" on a Mac; elsewhere the machine type ("x86_64")."""
    if sys.platform != "darwin":
        return platform.machine()
    return parse_brand(said("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")) or platform.machine()


def parse_brand(text: str) -> str:
    return text.strip().removeprefix("Apple ").strip()


def computer_name() -> str:
    """The name that the owner gave this machine ("Ada's Mac mini"), else its host name."""
    return given_name() or platform.node().split(".")[0] or "mac"


def given_name() -> str:
    """The computer name set in macOS; "" on other systems, or if no name is set."""
    return said(SCUTIL, "--get", "ComputerName").strip() if sys.platform == "darwin" else ""
