"""State of the macOS firewall."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final, Literal

TOOL: Final = "/usr/libexec/ApplicationFirewall/socketfilterfw"

Firewall = Literal["off", "on", "closed", "unknown"]
_STATES: Final[dict[str, Firewall]] = {"0": "off", "1": "on", "2": "closed"}


def firewall() -> Firewall:
    """ "closed" blocks every incoming connection; "unknown" where it can't be queried, as on Linux."""
    if sys.platform != "darwin":
        return "unknown"
    try:
        asked = subprocess.run([TOOL, "--getglobalstate"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return parse_state(asked.stdout)


def parse_state(text: str) -> Firewall:
    found = re.search(r"State\s*=\s*(\d)", text)
    return _STATES.get(found[1], "unknown") if found else "unknown"
