"""`python -m core.models.files.declared_packages MODULE ARGUMENTS` runs one of our modules as a child process.

The child finds only packages that macluster declares. Others in the same environment could change or end it:
transformers imports torch where there is one.
"""

from __future__ import annotations

import runpy
import sys
from importlib.machinery import ModuleSpec
from typing import Any, Final

# imported names of our dependencies and of theirs, compared with their metadata by a test
DECLARED: Final = frozenset((
    "_cffi_backend", "_yaml", "aiohappyeyeballs", "aiohttp", "aiosignal", "annotated_doc", "annotated_types",
    "anyio", "attr", "attrs", "backports", "cffi", "click", "core", "cryptography", "filelock", "frozenlist",
    "fsspec", "google", "h11", "hf_xet", "httpcore2", "httpx2", "huggingface_hub", "idna", "ifaddr",
    "importlib_metadata", "jaraco", "jeepney", "jinja2", "keyring", "lazy_importer", "llguidance", "markdown_it",
    "markupsafe", "mdit_py_plugins", "mdurl", "mlx", "mlx_lm", "mnemonic", "more_itertools", "msgspec", "multidict",
    "numpy", "packaging", "platformdirs", "prometheus_client", "propcache", "psutil", "pycparser", "pydantic",
    "pydantic_core", "pygments", "regex", "rich", "safetensors", "secretstorage", "sentencepiece", "shellingham",
    "shtab", "textual", "tokenizers", "tqdm", "transformers", "truststore", "typer", "typing_extensions",
    "typing_inspection", "yaml", "yarl", "zeroconf", "zipp",
))  # fmt: skip


class _Declared:
    """A finder of modules that finds only those of declared packages and of Python."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package = name.partition(".")[0]
        if package not in DECLARED and package not in sys.stdlib_module_names:
            return None
        spec: ModuleSpec | None = self._finder.find_spec(name, path, target)
        return spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def hide_others() -> None:
    """Make this process find only declared packages from now on."""
    sys.meta_path[:] = map(_Declared, sys.meta_path)


if __name__ == "__main__":
    hide_others()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
