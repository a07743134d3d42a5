"""Models of a disk, looked up as the node does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.models.files.catalog import Catalog, ModelEntry
from core.models.files.model_folder import _add, _contents, _digest_of
from core.models.files.safetensors import INDEX_NAME, header_bytes, weight_files


def read_entry(directory: Path) -> ModelEntry:
    """The model in `directory`. Raises the errors of `Catalog.find`."""
    return Catalog(()).find(str(directory))


def scan(roots: Sequence[Path]) -> list[ModelEntry]:
    """Every model below `roots` that can be used, by name."""
    return [found for found in Catalog(roots).survey() if isinstance(found, ModelEntry)]


def fingerprint(directory: Path) -> str:
    """Fingerprint of the model in `directory`, which need not be usable."""
    contents = _contents(directory)
    digest = _digest_of(contents)
    for number, file in enumerate(weight_files(directory, None) if INDEX_NAME not in contents else ()):
        _add(digest, f"header {number}", header_bytes(file))
    return digest.hexdigest()
