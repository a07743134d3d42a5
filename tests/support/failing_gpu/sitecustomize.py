"""Python reads this at start: the first worker that finds the file fails as MLX does when a GPU gives up."""

import os
import sys
from pathlib import Path

if "core.worker" in sys.orig_argv:
    import mlx.core as mx

    _compute = mx.eval

    def _eval(*arrays: object) -> None:
        try:
            Path(os.environ["GPU_FAILS_BY"]).unlink()
        except FileNotFoundError:
            _compute(*arrays)
            return
        raise RuntimeError(
            "[METAL] Command buffer execution failed: Insufficient Memory "
            "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)."
        )

    mx.eval = _eval
