"""State of the macOS firewall."""

from __future__ import annotations

import os
import re
import sys
from typing import Final, Literal

from core.mac.system_command import said

TOOL: Final = "/usr/libexec/ApplicationFirewall/socketfilterfw"

Firewall = Literal["off", "on", "closed", "unknown"]
_STATES: Final[dict[str, Firewall]] = {"0": "off", "1": "on", "2": "closed"}


def firewall() -> Firewall:
    """ "closed" blocks every incoming connection; "unknown" where it can't be queried, as on Linux."""
    return parse_state(said(TOOL, "--getglobalstate")) if sys.platform == "darwin" else "unknown"


def this_program() -> str:
    """The program that the firewall has to let in: Python's own, which a framework build starts from elsewhere."""
    import psutil

    try:
        return os.path.realpath(psutil.Process().exe())
    except (psutil.Error, OSError):
        return os.path.realpath(sys.executable)


def parse_state(text: str) -> Firewall:
    found = re.search(r"State\s*=\s*(\d)", text)
    return _STATES.get(found[1], "unknown") if found else "unknown"
