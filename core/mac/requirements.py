"""Check that macluster can run here. Standard library only, since it runs before other imports."""

from __future__ import annotations

import platform
import re
import sys
from typing import Final, NamedTuple

from core.mac.system_command import said

OLDEST_MACOS: Final = 14
PRODUCT_VERSION: Final = ("/usr/bin/sw_vers", "-productVersion")
TRANSLATED: Final = ("/usr/sbin/sysctl", "-n", "sysctl.proc_translated")


class Machine(NamedTuple):
    """Facts about this machine."""

    system: str  # `sys.platform`
    machine: str  # processor that this Python runs as
    translated: str = ""  # "1": Rosetta translates this process
    macos: str = ""  # version ("14.6.1"), "" on other systems


def this_machine() -> Machine:
    """Query this machine; asks about Rosetta only on an Intel Python."""
    system, machine = sys.platform, platform.machine()
    if system != "darwin":
        return Machine(system, machine)
    translated = said(*TRANSLATED).strip() if machine != "arm64" else ""
    return Machine(system, machine, translated, platform.mac_ver()[0])


def macos_version() -> str:
    """The version that this Mac's user knows, "" on other systems. Older Pythons see 16 instead of 26."""
    if sys.platform != "darwin":
        return ""
    return said(*PRODUCT_VERSION).strip() or platform.mac_ver()[0]


def version_numbers(text: str) -> tuple[int, ...]:
    """The first two numbers of a version of macOS."""
    return tuple(int(part) for part in re.findall("[0-9]+", text)[:2])


def unmet(here: Machine) -> str:
    """The missing requirement and its fix; "" if all are met."""
    if here.system != "darwin":
        return "" if here.system == "linux" else f"macluster runs on macOS and Linux, not on {here.system}."
    if here.machine != "arm64" and here.translated == "1":
        return (
            "This Python is one for Intel Macs, which Rosetta translates, and MLX does not run in it. "
            "Install macluster with one for Apple silicon, such as the Python of python.org or of uv."
        )
    if here.machine != "arm64":
        return "This Mac has an Intel processor; MLX, and so macluster, needs Apple silicon (M1 or later)."
    if () < version_numbers(here.macos) < (OLDEST_MACOS,):
        return (
            f"This Mac runs macOS {here.macos}; macluster needs macOS {OLDEST_MACOS} (Sonoma) or later. "
            "System Settings > General > Software Update says whether this Mac can have it."
        )
    return ""


def check_machine() -> None:
    if missing := unmet(this_machine()):
        sys.exit(f"macluster: {missing}")
