"""What computes layers starts without transformers."""

from __future__ import annotations

import subprocess
import sys

STARTS = """
import sys
from core.models.slicing.no_transformers import leave_out_transformers
leave_out_transformers()
import core.worker.main
print([name for name in sys.modules if name.startswith(("transformers.", "tokenizers"))])
"""


def test_a_worker_starts_without_transformers() -> None:
    ran = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['transformers.tokenization_utils_base']"
