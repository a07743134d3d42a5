"""Models of this Mac for the screens: clean names, and the node's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from core.requests.plans import LoadRequest, ModelChoice, PlanPreview, PlanRequest, PreviewRequest
from tui.state.load_options import as_preview
from tui.state.state import cleaned

if TYPE_CHECKING:
    from tui.client import NodeClient

_Request = TypeVar("_Request", bound=PlanRequest)


class ModelCatalog:
    """The models that the screens list. Every method raises MaclusterError."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client
        self._names: dict[str, str] = {}
        self._requests: dict[str, LoadRequest] = {}
        self._asked: dict[str, LoadRequest] = {}
        self._unplanned: set[str] = set()
        self.choices: tuple[ModelChoice, ...] | None = None
        self.known: tuple[ModelChoice, ...] = ()
        self.wants_known = False
        self.typed = ""

    def named(self, request: _Request) -> _Request:
        """The request with the node's own name of its model."""
        return msgspec.structs.replace(request, model=self._names.get(request.model, request.model))

    def options(self, choice: ModelChoice) -> LoadRequest:
        return self._requests.get(choice.name) or LoadRequest(model=choice.name)

    def set_options(self, request: LoadRequest) -> None:
        self._requests[request.model] = request
        self._unplanned.add(request.model)

    def is_planned(self, choice: ModelChoice) -> bool:
        return choice.name not in self._unplanned

    async def fetch(self, skipped: tuple[str, ...] = ()) -> None:
        """Get all models with previews that follow their options; without the Macs that are `skipped`."""
        found = await self._client.models()
        self._follow(found)
        raw = [await self._as_chosen(choice, skipped) for choice in found]
        if self.wants_known or not raw:
            self.known = tuple(cleaned(choice) for choice in await self._client.known_models())
        self.choices = tuple(cleaned(choice) for choice in raw)
        self._names = {shown.name: choice.name for shown, choice in zip(self.choices, raw, strict=True)}

    def _follow(self, found: Sequence[ModelChoice]) -> None:
        """Take over the options of models that were loaded elsewhere, except who has which layers."""
        for choice in found:
            asked, shown = choice.asked, cleaned(choice.name)
            if asked is not None and asked != self._asked.get(shown):
                self._asked[shown] = asked
                changed = {"model": shown, "layers": (), "without": (), "verify": False, "take_over": False}
                self._requests[shown] = cleaned(msgspec.structs.replace(asked, **changed))
                self._unplanned.discard(shown)

    async def _as_chosen(self, choice: ModelChoice, skipped: tuple[str, ...]) -> ModelChoice:
        shown = cleaned(choice.name)
        chosen = self._requests.get(shown)
        if not choice.path or not choice.layers or choice.loaded or not (skipped or chosen):
            return choice
        request = as_preview(chosen or LoadRequest(model=choice.name))
        request = msgspec.structs.replace(request, model=choice.name, without=skipped)
        planned = msgspec.structs.replace(choice, preview=await self._client.plan(request))
        self._answered(msgspec.structs.replace(request, model=shown))
        return planned

    async def examine(self, request: PreviewRequest) -> None:
        """Plan one model with what examining its files shows."""
        preview: PlanPreview = cleaned(await self._client.plan(self.named(request)))
        self._answered(request)
        self.choices = tuple(
            msgspec.structs.replace(each, preview=preview) if each.name == request.model else each
            for each in self.choices or ()
        )

    def _answered(self, request: PreviewRequest) -> None:
        chosen = self._requests.get(request.model)
        if chosen is not None and as_preview(chosen) == msgspec.structs.replace(request, without=()):
            self._unplanned.discard(request.model)

    async def load(self, request: LoadRequest) -> PlanPreview:
        return await self._client.load(self.named(request))
