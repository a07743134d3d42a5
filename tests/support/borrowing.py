"""A model whose second half uses the keys of the first half."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

LAYERS = 8


def borrowing(plain: Path, directory: Path) -> Path:
    """Add a second half to a model that uses the keys of the first half."""
    shutil.copytree(plain, directory)
    config = json.loads((directory / "config.json").read_text())
    config |= {"num_kv_shared_layers": LAYERS // 2, "use_double_wide_mlp": False}
    (directory / "config.json").write_text(json.dumps(config))
    return directory
