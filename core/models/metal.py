"""A Mac's GPU in MLX: recommended memory, wired weights and failures. Does nothing without a Metal GPU.

Sources: MLX 0.32 (`mx.device_info`, `mx.set_wired_limit`, its errors begin with "[METAL]" or "[metal::"), the status
codes of Metal's command buffers (kIOGPUCommandBufferCallbackError...).
"""

from __future__ import annotations

import os
import re
from typing import Final

import mlx.core as mx

from core.settings import DEVICE

_METAL: Final = re.compile(r"\[METAL\]|\[metal::")
_CODE: Final = re.compile(r"\((?:0x)?([0-9a-fA-F]{1,8}):")
_TOO_LONG: Final = "maximum allowed buffer size"  # one array is too large; the GPU has done nothing wrong
_NO_COMPILER: Final = "MTLCompilerService"
_INTERNAL: Final = "Internal Error"  # told of a long prompt, where memory is low
_OUT_OF_MEMORY: Final = 0x08
_FAULTS: Final = {
    0x02: "it worked on one step for too long",
    0x04: "it failed before and accepts no more work from this process",
    _OUT_OF_MEMORY: "it ran out of memory",
    0x0E: "one step froze the screen, so macOS stopped it",
}


class GpuFault(BaseException):
    """A failed GPU step, which ends the process. A BaseException, so that no error handler continues."""

    def __init__(self, why: str, *, is_memory: bool) -> None:
        super().__init__(why)
        self.why, self.is_memory = why, is_memory


def fault_of(error: Exception) -> GpuFault | None:
    """The GPU fault that caused an MLX error; None for other errors."""
    text = str(error)
    if not _METAL.search(text) or _TOO_LONG in text:
        return None
    if not (found := _CODE.search(text)):
        why = "macOS did not compile a kernel for it" if _NO_COMPILER in text else "Metal refused to work"
        return GpuFault(why, is_memory=False)
    code = int(found[1], 16)
    if _INTERNAL in text:
        return GpuFault(f"Metal failed inside (0x{code:02x}), as it does when memory is low", is_memory=True)
    return GpuFault(_FAULTS.get(code, f"Metal failed by 0x{code:02x}"), is_memory=code == _OUT_OF_MEMORY)


def obey_device() -> None:
    """Use the CPU if the environment requires it. Call it first in every process that computes."""
    if os.environ.get(DEVICE) == "cpu":
        mx.set_default_device(mx.cpu)


def working_set_bytes() -> int:
    """Memory that macOS recommends for a process, in bytes; 0 if unknown."""
    return int(mx.device_info().get("max_recommended_working_set_size", 0))


def wire_weights() -> None:
    """Wire the memory in use now: with unwired weights the GPU computes at a hundredth of its speed. Wires no more than
    that, because a Mac with all memory wired stops responding. From macOS 15 on.
    """
    if most := working_set_bytes():
        mx.synchronize()
        mx.set_wired_limit(min(mx.get_active_memory(), most))
