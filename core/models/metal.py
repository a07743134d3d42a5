"""A Mac's GPU as MLX shows it: how much memory it may use, what of it stays wired, and how it fails. Without such a GPU
there is nothing to tell and nothing to do. Sources: MLX 0.32 (`mx.device_info`, `mx.set_wired_limit`), the status codes
of Metal's command buffers (kIOGPUCommandBufferCallbackError...).
"""

from __future__ import annotations

import os
import re
from typing import Final

import mlx.core as mx

from core.settings import DEVICE

_CODE: Final = re.compile(r"\[METAL\].*\((?:0x)?([0-9a-fA-F]+):\s*kIOGPUCommandBufferCallbackError", re.DOTALL)
_OUT_OF_MEMORY: Final = 0x08
_FAULTS: Final = {
    0x02: "it worked on one step for too long",
    0x04: "it has failed before, and takes no work of this process any more",
    _OUT_OF_MEMORY: "it ran out of memory",
    0x0E: "it worked on one step for so long that the screen stood still, and macOS ended that",
}


class GpuFault(BaseException):
    """The GPU gave up a step: what it does for this process from now on cannot be trusted, so that the process ends. No
    handler of errors is to go on after it.
    """

    def __init__(self, why: str, *, is_memory: bool) -> None:
        super().__init__(why)
        self.why, self.is_memory = why, is_memory


def fault_of(error: Exception) -> GpuFault | None:
    """What an error that MLX raised tells of the GPU; None if it is about something else."""
    if not (found := _CODE.search(str(error))):
        return None
    code = int(found[1], 16)
    return GpuFault(_FAULTS.get(code, f"Metal failed by 0x{code:02x}"), is_memory=code == _OUT_OF_MEMORY)


def obey_device() -> None:
    """Compute on the CPU where the environment says so: its sums do not depend on shapes, so that tokens can be
    compared. In every process that computes, before it does.
    """
    if os.environ.get(DEVICE) == "cpu":
        mx.set_default_device(mx.cpu)


def working_set_bytes() -> int:
    """What macOS recommends that a process uses, in bytes: less than the memory of the Mac; 0 where nothing is said."""
    return int(mx.device_info().get("max_recommended_working_set_size", 0))


def wire_weights() -> None:
    """Keep what is in memory now where the GPU reaches it at once: with weights that are not wired it computes at a
    hundredth of its speed. No more than that: a Mac whose memory is all wired stands still. From macOS 15 on.
    """
    if most := working_set_bytes():
        mx.synchronize()
        mx.set_wired_limit(min(mx.get_active_memory(), most))
