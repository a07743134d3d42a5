"""Models of random weights for benches, made by another process, since the command imports no mlx."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from core.errors import NodeError
from core.models.files.child_start import command_of


def made_model(directory: Path, options: Mapping[str, object]) -> Path:
    """Make a model in `directory` with options of `core.models.made.maker`. Raises NodeError."""
    words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    if subprocess.run(command_of("core.models.made.maker", str(directory), *words)).returncode:
        raise NodeError("Making the model failed.", "The messages above say why.")
    return directory


def made_llama(directory: Path, layers: int, hidden: int, dtype: str = "bfloat16") -> Path:
    """Make a llama with heads of 64 and a vocabulary of 2,048. Raises NodeError."""
    heads = max(1, hidden // 64)
    sizes = {"layers": layers, "hidden": hidden, "intermediate": 3 * hidden, "head-dim": 64, "vocab": 2048}
    return made_model(directory, {"family": "llama", **sizes, "heads": heads, "kv-heads": heads, "dtype": dtype})
