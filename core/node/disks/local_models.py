"""Models on this Mac, read in a thread so that the node never waits for a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from core.errors import ModelMismatch, ModelNotFound, error_from
from core.models.files.catalog import BrokenModel, Catalog, Listed, ModelEntry, is_path, short_name
from core.models.files.layout import Layout
from core.models.files.manifest import Manifests

SOON_S: Final = 3.0


class LocalModels:
    """Models below `roots` (model folders, folders of them, or a hub cache), which may change at any time.

    `hashes`: file that stores the SHA-256 of weights; `kept`: file that stores what was read of the models.
    """

    def __init__(self, roots: Sequence[Path], hashes: Path, kept: Path | None = None) -> None:
        self._catalog = Catalog(roots, kept)
        self._manifests = Manifests(hashes)
        self._one_survey, self._begun = asyncio.Lock(), 0
        self._found: Listed | None = None  # by the last survey

    async def list(self) -> list[ModelEntry]:
        return [found for found in await self.survey() if isinstance(found, ModelEntry)]

    async def survey(self) -> Listed:
        """All models, including unusable ones with the reason. Calls at the same time share the next survey."""
        begun = self._begun
        async with self._one_survey:
            if begun == self._begun:
                self._begun += 1
                self._found = await asyncio.to_thread(self._catalog.survey)
            return self._found or []

    async def known(self) -> Listed:
        """As `survey`; of a long first one what it has found so far."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self.survey()), SOON_S if self._found is None else None)
        return self._catalog.so_far

    async def find(self, model: str) -> ModelEntry:
        """Find a model by its name or folder. Raises UsageError, ModelNotFound, ModelError."""
        listed = [] if is_path(model) else await self.survey()
        return await asyncio.to_thread(self._catalog.find, model, listed)

    async def layout(self, entry: ModelEntry) -> Layout:
        """Byte sizes of its layers, as they were when `entry` was read."""
        if (known := self._catalog.layout_of(entry)) is not None:
            return known
        return await asyncio.to_thread(self._catalog.layout, Path(entry.path))

    async def manifest(self, directory: Path) -> dict[str, str]:
        """Hex SHA-256 by file of a model. Raises ModelNotFound, BadModel.

        Takes about a second per 2 GB not hashed before; cancelling the task stops the thread.
        """
        stop = threading.Event()
        try:
            return await asyncio.to_thread(self._manifests.of, directory, stop.is_set)
        finally:
            stop.set()

    async def find_same(self, name: str, fingerprint: str) -> Path:
        """Folder of the model with exactly these files. `name` may come from another Mac and is never used as a path.

        Raises ModelMismatch, ModelNotFound, or the ModelError of the copy on this Mac.
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
