"""Models, a tokenizer and rosters of a simulated Mac, without files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from core.events import Plan
from core.models.files.cache_size import CacheSize
from core.models.files.catalog import ModelEntry
from core.models.files.layout import Layout
from core.models.text.text_messages import Decoded
from core.node.disks.holdings import Holdings
from core.node.disks.messages import FalseFile
from core.requests.answers import Message
from core.settings import GB
from core.trust.roster.format import Roster
from core.trust.roster.store import RosterStore
from tests.simulator.keys import NOWHERE

LAYERS: Final = 4
LAYER_BYTES: Final = {"large": GB, "small": GB // 2}
CACHES = (CacheSize(),) * LAYERS
EOS = frozenset({21, 37})
TEXT_S: Final = 0.002  # longer than a step may take, so several tokens are in flight


def layout_of(model: str) -> Layout:
    """Layers of the same size as the embedding and the output head."""
    size = LAYER_BYTES[model]
    each = (size,) * LAYERS
    return Layout(
        layers=LAYERS,
        layer_bytes=each,
        token_bytes=each,
        embed_bytes=size,
        output_bytes=size,
        tied=False,
        caches=CACHES,
    )


class Models:
    """The same models on every Mac, without a hub."""

    @property
    def models(self) -> Models:
        return self

    async def is_due(self, directory: Path) -> bool:
        return False

    async def ensure(self, directory: Path, fingerprint: str, first: str) -> None:
        """Accept the model without a comparison."""

    async def drop(self, device_id: str, message: FalseFile) -> None:
        """Delete nothing: no file comes from a hub."""

    async def find(self, model: str) -> ModelEntry:
        return entry(model)

    async def layout(self, found: ModelEntry) -> Layout:
        return layout_of(found.name)

    async def of(self, found: ModelEntry) -> None:
        """A split profile that allows a cut anywhere."""

    async def manifest(self, directory: Path) -> dict[str, str]:
        return {"model.safetensors": "a" * 64}

    async def find_same(self, name: str, fingerprint: str) -> Path:
        return NOWHERE

    async def renew(self, plan: Plan) -> None:
        """Copy nothing: every Mac has the model."""

    def lacking(self, plan: Plan) -> tuple[str, ...]:
        return ()

    def holdings(self, fingerprint: str) -> Holdings:
        return Holdings({}, frozenset())


@cache
def entry(model: str) -> ModelEntry:
    return ModelEntry(
        name=model,
        path=model,
        model_type="",
        layers=LAYERS,
        total_bytes=0,
        quantization="",
        context_max=4096,
        fingerprint=model[0] * 64,
    )


class Stream:
    """Turns tokens to text after a short delay."""

    def add(self, tokens: Sequence[int], named: Sequence[int], then: Callable[[Decoded], None]) -> None:
        text, names = "".join(f"{token} " for token in tokens), tuple(map(str, named))
        asyncio.get_running_loop().call_later(TEXT_S, then, Decoded(text=text, names=names))

    async def add_all(self, tokens: Sequence[int]) -> Decoded:
        await asyncio.sleep(TEXT_S)
        return Decoded(text="".join(f"{token} " for token in tokens))

    def end(self) -> None:
        """End nothing."""


class Tokenizer:
    """A tokenizer that writes each token as its number."""

    eos = EOS
    longest = 0
    is_over = False

    async def encode(self, messages: Sequence[Message], raw: bool, tools: object, options: object) -> list[int]:
        return [int(word) for word in messages[-1].content.split()]

    def stream(self, name: str, *, is_chat: bool = False) -> Stream:
        return Stream()

    async def end(self) -> None:
        """End nothing."""


async def read_tokenizer(directory: Path) -> Any:
    """The only tokenizer."""
    return Tokenizer()


class Rosters(RosterStore):
    """A roster store in memory."""

    def __init__(self, rosters: tuple[Roster, ...]) -> None:
        self._folder, self._history, self._certificates = NOWHERE, list(rosters), {}
        self._epochs = {roster.hash: roster.epoch for roster in rosters}
        self._declined, self.forked, self._newer = (), None, []
        self.adopted_at = 0.0

    def _persist(self, fresh: list[Roster]) -> None:
        """Write nothing; the store is in memory."""

    def _path(self, roster: Roster) -> Path:
        return Path("/")
