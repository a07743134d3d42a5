"""Python reads this at start: two workers that ask for NCCL get MLX's own ring on loopback.

That ring needs no Python to add up, as NCCL and jaccl.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

if "core.worker" in sys.orig_argv:
    import mlx.core as mx

    _init = mx.distributed.init

    def _init_ring(strict: bool = False, backend: str = "any") -> mx.distributed.Group:
        assert backend == "nccl"
        port = os.environ["NCCL_PORT"]
        with TemporaryDirectory(prefix="macluster-") as folder:
            hosts = Path(folder) / "hosts.json"
            # a Mac has one address on its loopback
            other = f"127.0.0.1:{int(port) + 1}" if sys.platform == "darwin" else f"127.0.0.2:{port}"
            hosts.write_text(f'[["127.0.0.1:{port}"], ["{other}"]]')
            os.environ["MLX_HOSTFILE"] = str(hosts)
            return _init(strict=strict, backend="ring")

    mx.distributed.init = _init_ring  # type: ignore[assignment]
