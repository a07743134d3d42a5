"""The models on this Mac, read in a thread so that the node never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from core.errors import ModelMismatch, ModelNotFound
from core.models.catalog import ModelEntry, read_entry, scan
from core.models.layout import Layout, read_layout


class Models:
    """Looks in `roots` (model directories, folders of them, or a hub cache), anew at each call."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)

    async def list(self) -> list[ModelEntry]:
        """Every model found."""
        return await asyncio.to_thread(scan, self._roots)

    async def find(self, model: str) -> ModelEntry:
        """A model by its name in the catalog or by its directory. Raises ModelNotFound, BadModel."""
        if "/" in model:
            return await asyncio.to_thread(lambda: read_entry(Path(model).expanduser()))
        for entry in await self.list():
            if entry.name == model:
                return entry
        raise ModelNotFound(f"There is no model {model!r} on this Mac.")

    async def layout(self, entry: ModelEntry) -> Layout:
        """Bytes a layer of a model. Raises BadModel."""
        return await asyncio.to_thread(read_layout, Path(entry.path))

    async def find_same(self, name: str, fingerprint: str) -> Path:
        """The directory of the model that has just these files. Raises ModelMismatch, ModelNotFound."""
        entries = await self.list()
        for entry in entries:
            if entry.fingerprint == fingerprint:
                return Path(entry.path)
        for entry in entries:
            if entry.name == name:
                raise ModelMismatch(f"{name} on this Mac is {entry.fingerprint[:12]}, the head has {fingerprint[:12]}.")
        raise ModelNotFound(f"{name} is not on this Mac.", "Copy its directory into ~/.macluster/models there.")
