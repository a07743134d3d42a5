"""Imports mlx_lm, transformers and aiohttp without what a process doesn't need, to save start-up time and memory.

mlx_lm imports transformers (tokenizers), huggingface_hub (downloads) and numpy (its own generation); a process that
only computes layers needs none of them. A tokenizer needs a small part of transformers, whose import mostly loads a
list of all its models, numpy and the hub client. A node needs the server of aiohttp, but not its client.
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
    """Placeholder for a class that is only named, inherited from or registered."""

    def register(cls, *_: Any, **__: Any) -> None:
        """Do nothing, like AutoTokenizer.register."""


class _LeftOut(ModuleType):
    def __getattr__(self, name: str) -> _Unused:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused(name, (), {})


class _Late(ModuleType):
    """A package whose __init__ runs when an unknown name is read. `known`: name -> module, None: a placeholder."""

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
    """Import mlx_lm without the parts that a process for layers doesn't need."""
    for name in _NAMES:
        sys.modules.setdefault(name, _LeftOut(name))
    _without_init("mlx_lm")  # which imports its commands


def import_for_text_only() -> None:
    """Import the parts of mlx_lm and transformers that a tokenizer needs; others load on first use."""
    import_transformers_late()
    sys.modules.setdefault("numpy", _Late("numpy", dict(_ARRAYS)))
    sys.modules.setdefault("tqdm.auto", _Late("tqdm.auto", {"tqdm": "tqdm.std"}))  # avoids importing asyncio
    for name in _HUB:
        sys.modules.setdefault(name, _LeftOut(name))
    _without_init("mlx_lm")  # which imports its commands


def import_transformers_late() -> None:
    """Import the list of all models of transformers on first use."""
    from importlib import metadata  # not needed in a worker

    package = _Late("transformers", dict(_TEXT))
    package.__version__ = metadata.version("transformers")  # type: ignore[attr-defined]
    sys.modules.setdefault("transformers", package)
    sys.modules.setdefault("transformers.models", _Late("transformers.models", {}))


def import_for_serving_only() -> None:
    """Import aiohttp without its client, whose import reads every certificate that this Mac trusts."""
    from importlib import metadata

    package = _without_init("aiohttp")
    package.__version__ = metadata.version("aiohttp")  # type: ignore[attr-defined]


def _without_init(name: str) -> ModuleType:
    """The package without what its __init__ does; its submodules are found as usual."""
    spec = find_spec(name)
    assert spec is not None
    return sys.modules.setdefault(name, module_from_spec(spec))
