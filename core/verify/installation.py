"""How macluster was installed, and whether this machine meets its requirements."""

from __future__ import annotations

import json
import sys
import threading
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from core.mac.requirements import Machine, this_machine, unmet
from core.verify.check import Outcome, failed, passed, skipped

# files that installers of isolated commands leave in the environment
_LEFT_BY: Final = {"uv-receipt.toml": "uv tool", "pipx_metadata.json": "pipx"}
_INSTALLERS: Final = ("pip", "uv")


def install(_: threading.Event) -> Outcome:
    """Check that macluster was installed from a wheel and that this machine meets its requirements."""
    return outcome(distribution("macluster"), Path(sys.prefix), this_machine())


def outcome(found: Distribution, prefix: Path, here: Machine) -> Outcome:
    """Outcome by the installer's records; `prefix` is the folder of the environment."""
    if missing := unmet(here):
        return failed(missing)
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if found.read_text("WHEEL") is None or origin.get("dir_info", {}).get("editable"):
        return skipped("it runs from its sources: install the wheel, then run this again")
    wrote = (found.read_text("INSTALLER") or "").strip()
    plain = wrote if wrote in _INSTALLERS else "another program"
    by = next((name for file, name in _LEFT_BY.items() if (prefix / file).exists()), plain)
    return passed(f"a wheel, installed by {by}; this Python runs as {here.machine}")
