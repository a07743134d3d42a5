"""Code that computes layers imports no tokenizers, hub, numpy and asyncio; reading a tokenizer imports few modules; a
node imports no web client.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.maker import make_model

STARTS = """
import sys
from core.models.lean_imports import import_for_layers_only
import_for_layers_only()
import core.worker.main
import mlx_lm.models.llama
lean = ("transformers.", "tokenizers", "huggingface_hub.", "numpy", "httpx", "mlx_lm.generate", "asyncio")
print([name for name in sys.modules if name.startswith(lean)])
"""


READS = """
import sys
from pathlib import Path
from core.models.lean_imports import import_for_text_only
import_for_text_only()
from core.models.text.tokenizer import Tokens
print(sorted(Tokens.load(Path(sys.argv[1])).eos))
late = sys.modules["transformers"]
unwanted = {"mlx_lm.generate", "numpy.linalg", "asyncio", "huggingface_hub._jobs_api"}
print(sorted(unwanted & set(sys.modules)), "LlamaConfig" in vars(late))
import numpy
print(numpy.zeros(2).tolist(), sys.modules["numpy"] is numpy)
import transformers
print(transformers.LlamaConfig.__name__, transformers is late, sys.modules["transformers"] is late)
"""

SERVES = """
import sys
from core.models.lean_imports import import_for_serving_only
import_for_serving_only()
import core.node.process
print([name for name in ("aiohttp.web", "aiohttp.client", "aiohttp.connector") if name in sys.modules])
"""


def test_a_node_starts_without_a_web_client() -> None:
    ran = subprocess.run([sys.executable, "-c", SERVES], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['aiohttp.web']"


def test_a_worker_starts_without_tokenizers_hub_numpy_and_asyncio() -> None:
    ran = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['transformers.tokenization_utils_base']"


@pytest.mark.slow
def test_a_tokenizer_is_read_without_the_list_of_models_which_comes_when_it_is_asked_for(tmp_path: Path) -> None:
    make_model(tmp_path, "llama", layers=1)
    ran = subprocess.run([sys.executable, "-c", READS, tmp_path], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "[2]", "[] False", "[0.0, 0.0] False", "LlamaConfig True False"
    ]  # fmt: skip
