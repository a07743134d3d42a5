"""Most of what importing mlx_lm takes is for others: transformers for tokenizers, the hub for downloads, numpy for its
own generation. A process that only computes layers asks for none of it. Of transformers a tokenizer takes a small part;
most of its import is a list of all its models, numpy for arrays that nobody asks for, and what speaks with the hub.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final

_NAMES: Final = ("transformers", "transformers.tokenization_utils_base", "huggingface_hub")
_TEXT: Final[dict[str, str | None]] = {
    "AutoTokenizer": "transformers.models.auto.tokenization_auto",
    "PreTrainedTokenizer": "transformers.tokenization_python",
    "PreTrainedTokenizerFast": "transformers.tokenization_utils_tokenizers",
}
_ARRAYS: Final[dict[str, str | None]] = {"dtype": None, "float32": None, "ndarray": None}
_HUB: Final = ("httpx2", "httpcore2", "huggingface_hub.hf_api", "huggingface_hub._snapshot_download")


class _Unused(type):
    """Stands for a class: it can be named, inherited from and registered, and has nothing else to offer."""

    def register(cls, *_: Any, **__: Any) -> None:
        """As that of AutoTokenizer."""


class _LeftOut(ModuleType):
    def __getattr__(self, name: str) -> _Unused:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused(name, (), {})


class _Late(ModuleType):
    """A package whose __init__ runs when somebody asks for what is not `known`: names, and the module that each is
    from, or None for what is only named.
    """

    def __init__(self, name: str, known: dict[str, str | None]) -> None:
        super().__init__(name)
        spec = find_spec(name)
        assert spec is not None
        self.__spec__, self.__path__ = spec, spec.submodule_search_locations or []
        self._known = known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._known:
            module = self._known[name]
            return getattr(import_module(module), name) if module else _Unused(name, (), {})
        del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def import_for_layers_only() -> None:
    """Have mlx_lm imported without what layers do not need, in this process, which computes layers and nothing else."""
    for name in _NAMES:
        sys.modules.setdefault(name, _LeftOut(name))
    _import_without_commands()


def import_for_text_only() -> None:
    """Have mlx_lm and transformers imported as far as a tokenizer needs them, and the rest when it is asked for."""
    from importlib import metadata  # a worker has no use for it

    package = _Late("transformers", dict(_TEXT))
    package.__version__ = metadata.version("transformers")  # type: ignore[attr-defined]
    sys.modules.setdefault("transformers", package)
    sys.modules.setdefault("transformers.models", _Late("transformers.models", {}))
    sys.modules.setdefault("numpy", _Late("numpy", dict(_ARRAYS)))
    sys.modules.setdefault("tqdm.auto", _Late("tqdm.auto", {"tqdm": "tqdm.std"}))  # else asyncio comes with it
    for name in _HUB:
        sys.modules.setdefault(name, _LeftOut(name))
    _import_without_commands()


def _import_without_commands() -> None:
    spec = find_spec("mlx_lm")
    assert spec is not None
    # the package without its __init__, which imports its commands; what is asked for is found in it as ever
    sys.modules.setdefault("mlx_lm", module_from_spec(spec))
