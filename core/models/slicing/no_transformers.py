"""Half of what importing mlx_lm takes is transformers, for a tokenizer that a process with layers never asks for."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Final

_NAMES: Final = ("transformers", "transformers.tokenization_utils_base")


class _Unused(type):
    """Stands for a class: it can be named, inherited from and registered, and has nothing else to offer."""

    def register(cls, *_: Any, **__: Any) -> None:
        """As that of AutoTokenizer."""


class _LeftOut(ModuleType):
    def __getattr__(self, name: str) -> _Unused:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused(name, (), {})


def leave_out_transformers() -> None:
    """Have mlx_lm imported without it in this process, which computes layers and does nothing else."""
    for name in _NAMES:
        sys.modules.setdefault(name, _LeftOut(name))
