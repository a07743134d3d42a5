"""Models of random weights for benches that import no mlx."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from core.errors import NodeError

_SIZES: Final = ("--head-dim", "64", "--vocab", "2048")


def made_apart(directory: Path, layers: int, hidden: int, dtype: str = "bfloat16") -> Path:
    """Make a model of random weights in `directory`, in another process; raises NodeError."""
    heads = str(max(1, hidden // 64))
    sizes = ("--family", "llama", "--layers", str(layers), "--hidden", str(hidden))
    command = [sys.executable, "-m", "core.models.made.maker", str(directory), *sizes, *_SIZES, "--dtype", dtype]
    command += ["--heads", heads, "--kv-heads", heads, "--intermediate", str(3 * hidden)]
    if subprocess.run(command, env={**os.environ, "PYTHONSAFEPATH": "1"}).returncode:
        raise NodeError("Making the model failed.", "The messages above say why.")
    return directory
