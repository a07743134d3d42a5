"""Most of what importing mlx_lm takes is for others: transformers for tokenizers, the hub for downloads, numpy for its
own generation. A process that only computes layers asks for none of it.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

_NAMES: Final = ("transformers", "transformers.tokenization_utils_base", "huggingface_hub")


class _Unused(type):
    """Stands for a class: it can be named, inherited from and registered, and has nothing else to offer."""

    def register(cls, *_: Any, **__: Any) -> None:
        """As that of AutoTokenizer."""


class _LeftOut(ModuleType):
    def __getattr__(self, name: str) -> _Unused:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused(name, (), {})


def import_for_layers_only() -> None:
    """Have mlx_lm imported without what layers do not need, in this process, which computes layers and nothing else."""
    for name in _NAMES:
        sys.modules.setdefault(name, _LeftOut(name))
    spec = find_spec("mlx_lm")
    assert spec is not None
    # the package without its __init__, which imports its commands; what is asked for is found in it as ever
    sys.modules.setdefault("mlx_lm", module_from_spec(spec))
