"""Architectures of the installed mlx-lm, found without importing it (which takes seconds)."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from core.errors import UnsupportedModel

# aliases of mlx-lm, compared with its own by a test
ALIASES: Final = {
    "mistral": "llama",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "falcon_mamba": "mamba",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "iquestcoder": "llama",
    "xverse": "llama",
    "gemma4_unified": "gemma4",
    "deepseek_v41_text": "deepseek_v41",
}


def check_architecture(config: dict[str, Any], name: str) -> None:
    """Raise UnsupportedModel if mlx-lm has no module for the `model_type`, or the model brings its own code.

    Does nothing where mlx-lm is not installed.
    """
    if "model_file" in config:
        raise UnsupportedModel(
            f"{name} brings its own code ({str(config['model_file'])!r:.100}), which macluster never runs.",
            "Choose a model whose architecture mlx-lm knows.",
        )
    folder, model_type = _modules(), config["model_type"]
    if folder and not (folder / f"{ALIASES.get(model_type, model_type)}.py").is_file():
        raise UnsupportedModel(
            f"mlx-lm on this Mac does not know the architecture {model_type!r} of {name}.",
            "Choose another model, or wait for a version of macluster that knows it.",
        )


@cache
def _modules() -> Path | None:
    spec = find_spec("mlx_lm")
    locations = spec.submodule_search_locations if spec else None
    return Path(locations[0]) / "models" if locations else None
