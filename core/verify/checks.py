"""Every check that needs no screen and no other Mac. Add one here, and it is in the report."""

from __future__ import annotations

from core.verify import installation, machine
from core.verify.check import Check
from core.verify.running import in_a_child

SLICES_S = 60.0
MEMORY_S = 30.0
HOP_S = 30.0
SPEED_S = 100.0


def checks_of(host: str) -> tuple[Check, ...]:
    """In their order. `host` is the address to look at, as a node's: all interfaces where it is 0.0.0.0."""
    working_set, wired, footprint = (
        in_a_child("gpu_memory", what, seconds=MEMORY_S) for what in ("working-set", "wired", "footprint")
    )
    exact, near = (in_a_child("slices", device, seconds=SLICES_S) for device in ("cpu", "gpu"))
    return (
        Check("install", "the wheel is installed where it can run", installation.install),
        Check("name", "this Mac is called as its owner calls it", machine.name),
        Check("chip", "predictions know this Mac's chip", machine.chip),
        Check("open files", "links and models may open enough files", machine.open_files),
        Check("keychain", "the keychain keeps the key", machine.keychain),
        Check("stays awake", "macOS keeps this Mac awake while it is to be", machine.awake),
        Check("sleep", "the node's clock stands still while this Mac sleeps", machine.sleep),
        Check("firewall", "other Macs may come in", machine.incoming),
        Check("Bonjour", "this Mac is found, and finds others", machine.bonjour(host)),
        Check("ports", "macOS reports what kind each port is", machine.ports(host)),
        Check("rdma", "macOS reports whether this Mac has RDMA, and by which devices", machine.rdma),
        Check("working set", "macOS reports how much memory the GPU may use", working_set, MEMORY_S),
        Check("wired memory", "weights are wired once they are loaded", wired, MEMORY_S),
        Check("footprint", "what the GPU takes is seen in the footprint", footprint, MEMORY_S),
        Check("slices on the CPU", "a cut model computes what mlx_lm computes", exact, SLICES_S),
        Check("slices on the GPU", "a cut model computes what mlx_lm computes", near, SLICES_S),
        Check("hop", "a sealed hop works, and what it costs", in_a_child("hop_cost", seconds=HOP_S), HOP_S),
        Check("stages", "1, 2 and 3 stages answer, and how fast", in_a_child("stage_speed", seconds=SPEED_S), SPEED_S),
    )
