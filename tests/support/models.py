"""Models of a disk, looked up as the node does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.models.files.catalog import Catalog, ModelEntry


def read_entry(directory: Path) -> ModelEntry:
    """The model in `directory`. Raises the errors of `Catalog.find`."""
    return Catalog(()).find(str(directory))


def scan(roots: Sequence[Path]) -> list[ModelEntry]:
    """Every model below `roots` that can be used, by name."""
    return [found for found in Catalog(roots).survey() if isinstance(found, ModelEntry)]
