"""All checks that need no screen and no other Mac, the installation's first; add one here to add it to the report."""

from __future__ import annotations

import json
import sys
import threading
from functools import partial
from importlib.metadata import Distribution, distribution
from pathlib import Path

from core.mac.doctor import metal_build
from core.mac.installation import installer_of
from core.mac.requirements import Machine, this_machine, unmet
from core.verify import machine
from core.verify.check import Check, Outcome, failed, passed, skipped
from core.verify.running import in_a_child

SLICES_S = 60.0
MEMORY_S = 30.0
HOP_S = 30.0
SPEED_S = 100.0


def checks_of(host: str) -> tuple[Check, ...]:
    """All checks in order. `host` is the address to check, as for a node; 0.0.0.0 means all interfaces."""
    working_set, wired, footprint = (
        in_a_child("gpu_memory", what, seconds=MEMORY_S) for what in ("working-set", "wired", "footprint")
    )
    exact, near = (in_a_child("slices", device, seconds=SLICES_S) for device in ("cpu", "gpu"))
    return (
        Check("install", "the wheel is installed on a machine that can run it", install),
        Check("name", "macluster finds the name that this Mac's owner gave it", machine.name),
        Check("chip", "predictions know this Mac's chip", machine.chip),
        Check("open files", "links and models can open enough files", machine.open_files),
        Check("keychain", "the keychain keeps the key", machine.keychain),
        Check("stays awake", "macOS keeps this Mac awake when macluster asks for it", machine.awake),
        Check("sleep", "the node's clock stands still while this Mac sleeps", machine.sleep),
        Check("firewall", "other Macs can connect", machine.incoming),
        Check("Bonjour", "this Mac is found and finds others", partial(machine.bonjour, host)),
        Check("ports", "macOS reports the kind of each network port", partial(machine.ports, host)),
        Check("rdma", "macOS reports whether this Mac has RDMA, and its devices", machine.rdma),
        Check("working set", "macOS reports how much memory the GPU can use", working_set, MEMORY_S),
        Check("wired memory", "loaded weights are wired", wired, MEMORY_S),
        Check("footprint", "the footprint includes the GPU's memory", footprint, MEMORY_S),
        Check("slices on the CPU", "a cut model computes what mlx_lm computes", exact, SLICES_S),
        Check("slices on the GPU", "a cut model computes what mlx_lm computes", near, SLICES_S),
        Check("hop", "a sealed hop works, at what cost", in_a_child("hop_cost", seconds=HOP_S), HOP_S),
        Check("stages", "1, 2 and 3 stages answer, at what speed", in_a_child("stage_speed", seconds=SPEED_S), SPEED_S),
    )


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
    by = installer_of(found, prefix) or "another program"
    build = f"; MLX's build for macOS {kernels}" if (kernels := metal_build()) else ""
    return passed(f"a wheel, installed by {by}; this Python runs as {here.machine}{build}")
