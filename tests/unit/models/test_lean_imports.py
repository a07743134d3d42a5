"""What computes layers starts without tokenizers, the hub and numpy."""

from __future__ import annotations

import subprocess
import sys

STARTS = """
import sys
from core.models.slicing.lean_imports import import_for_layers_only
import_for_layers_only()
import core.worker.main
import mlx_lm.models.llama
lean = ("transformers.", "tokenizers", "huggingface_hub.", "numpy", "httpx", "mlx_lm.generate")
print([name for name in sys.modules if name.startswith(lean)])
"""


def test_a_worker_starts_without_tokenizers_hub_and_numpy() -> None:
    ran = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['transformers.tokenization_utils_base']"
