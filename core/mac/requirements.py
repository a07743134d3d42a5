"""What macluster needs of the machine before anything else of it can be imported: only the standard library is used."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import Final, NamedTuple

OLDEST_MACOS: Final = 14
TRANSLATED: Final = ("/usr/sbin/sysctl", "-n", "sysctl.proc_translated")


class Machine(NamedTuple):
    """`system` is `sys.platform`, `machine` what this Python was built for or runs as, `translated` what sysctl says of
    Rosetta ("1": it translates this process), `macos` the version ("14.6.1"), "" elsewhere.
    """

    system: str
    machine: str
    translated: str = ""
    macos: str = ""


def this_machine() -> Machine:
    """As it is; Rosetta is only asked about where it could be at work."""
    system, machine = sys.platform, platform.machine()
    if system != "darwin":
        return Machine(system, machine)
    asked = machine != "arm64"
    translated = subprocess.run(TRANSLATED, capture_output=True, text=True, timeout=5, check=False) if asked else None
    return Machine(system, machine, translated.stdout.strip() if translated else "", platform.mac_ver()[0])


def unmet(here: Machine) -> str:
    """What is missing, and the cure; "" where nothing is."""
    if here.system != "darwin":
        return "" if here.system == "linux" else f"macluster runs on macOS and Linux, not on {here.system}."
    if here.machine != "arm64" and here.translated == "1":
        return (
            "This Python is one for Intel Macs, which Rosetta translates, and MLX does not run in it. "
            "Install macluster with one for Apple silicon, such as the Python of python.org or of uv."
        )
    if here.machine != "arm64":
        return "This Mac has an Intel processor; MLX, and so macluster, needs Apple silicon (M1 or later)."
    release = here.macos.partition(".")[0]
    if release.isdecimal() and int(release) < OLDEST_MACOS:
        return (
            f"This Mac runs macOS {here.macos}; macluster needs macOS {OLDEST_MACOS} (Sonoma) or later. "
            "System Settings > General > Software Update says whether this Mac can have it."
        )
    return ""


def check_machine() -> None:
    """Ends this process, with a sentence, where macluster cannot run."""
    if missing := unmet(this_machine()):
        sys.exit(f"macluster: {missing}")
