"""The models on this Mac, read in a thread so that the node never waits for a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

from core.errors import ModelMismatch, ModelNotFound, error_from
from core.models.files.catalog import BrokenModel, Catalog, ModelEntry, short_name
from core.models.files.layout import Layout
from core.models.files.manifest import Manifests


class LocalModels:
    """Looks in `roots` (model directories, folders of them, or a hub cache); what lies there may change at any time.

    `hashes` is the file that remembers the SHA-256 of weights.
    """

    def __init__(self, roots: Sequence[Path], hashes: Path) -> None:
        self._catalog = Catalog(roots)
        self._manifests = Manifests(hashes)

    async def list(self) -> list[ModelEntry]:
        """Every model that can be used."""
        return [found for found in await self.survey() if isinstance(found, ModelEntry)]

    async def survey(self) -> Sequence[ModelEntry | BrokenModel]:
        """Every model found, also those that cannot be used and why."""
        return await asyncio.to_thread(self._catalog.survey)

    async def find(self, model: str) -> ModelEntry:
        """A model by its name in the catalog or by its directory. Raises UsageError, ModelNotFound, ModelError."""
        return await asyncio.to_thread(self._catalog.find, model)

    async def layout(self, entry: ModelEntry) -> Layout:
        """Bytes a layer of a model. Raises BadModel."""
        return await asyncio.to_thread(self._catalog.layout, Path(entry.path))

    async def manifest(self, directory: Path) -> dict[str, str]:
        """File name -> hex SHA-256 of the files of a model. Raises ModelNotFound, BadModel.

        Takes about a second for every 2 GB that were not hashed before; cancelling the task stops the thread.
        """
        stop = threading.Event()
        try:
            return await asyncio.to_thread(self._manifests.of, directory, stop.is_set)
        finally:
            stop.set()

    async def find_same(self, name: str, fingerprint: str) -> Path:
        """The directory of the model that has just these files. Raises ModelMismatch, ModelNotFound, or what is wrong
        with the copy here. `name` may come from another Mac: it is compared, and never taken for a path.
        """
        found = await self.survey()
        for entry in found:
            if isinstance(entry, ModelEntry) and entry.fingerprint == fingerprint:
                return Path(entry.path)
        alike = [entry for entry in found if short_name(entry.name) == short_name(name)]
        for entry in alike:
            if isinstance(entry, ModelEntry):
                raise ModelMismatch(f"{name} on this Mac is {entry.fingerprint[:12]}, the head has {fingerprint[:12]}.")
        for entry in alike:
            if isinstance(entry, BrokenModel):
                raise error_from(entry.problem)
        raise ModelNotFound(f"{name} is not on this Mac.", "Copy its directory into ~/.macluster/models there.")
