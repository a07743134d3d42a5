"""The models of this Mac as the screens know them: clean names, and what the node calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from core.requests import LoadRequest, ModelChoice, PlanPreview, PreviewRequest
from tui.state import washed

if TYPE_CHECKING:
    from tui.client import NodeClient


class Catalog:
    """`choices` is None until the node was asked. Every method raises what `tui.bridge.FAILURES` lists."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client
        self._names: dict[str, str] = {}
        self.choices: tuple[ModelChoice, ...] | None = None

    def name_of(self, shown: str) -> str:
        """What the node calls the model that is shown so."""
        return self._names.get(shown, shown)

    async def fetch(self) -> None:
        """Ask the node what is there."""
        raw = await self._client.models()
        self.choices = tuple(washed(choice) for choice in raw)
        self._names = {shown.name: choice.name for shown, choice in zip(self.choices, raw, strict=True)}

    async def examine(self, wish: PreviewRequest) -> None:
        """Plan the model that is shown as `wish.model` with what examining it shows."""
        change = msgspec.structs.replace
        preview: PlanPreview = washed(await self._client.plan(change(wish, model=self.name_of(wish.model))))
        self.choices = tuple(
            change(each, preview=preview) if each.name == wish.model else each for each in self.choices or ()
        )

    async def load(self, wish: LoadRequest) -> PlanPreview:
        """Load the model that is shown as `wish.model`."""
        return await self._client.load(msgspec.structs.replace(wish, model=self.name_of(wish.model)))
