"""Actions on models: list, examine, load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Final

import msgspec
from textual.app import SystemCommand

from core.errors import MaclusterError
from core.requests.plans import LoadRequest, PreviewRequest
from tui.control.app_interface import AppInterface, served_answers_end
from tui.control.model_catalog import ModelCatalog
from tui.state import state
from tui.state.load_options import option_words
from tui.state.seat import answers_of, broken_words, led_words

# a cursor that moves on sooner skips the model
EXAMINE_AFTER_S: Final = 0.4


class ModelController:
    """Keeps the catalog up to date, and loads models."""

    def __init__(self, app: AppInterface, catalog: ModelCatalog) -> None:
        self._app = app
        self._catalog = catalog

    def find(self) -> None:
        self._app.in_background(self._find, group="models", exclusive=True)

    def examine(self, request: PreviewRequest, *, at_once: bool = False) -> None:
        """Plan one model with what examining shows: `at_once`, or when the cursor has rested on it."""
        after_s = 0.0 if at_once else EXAMINE_AFTER_S
        self._app.in_background(self._examine, request, after_s, group="examine", exclusive=True)

    def offers(self) -> Iterator[SystemCommand]:
        for choice in self._catalog.choices or ():
            if choice.preview.plan is not None and not choice.loaded and self._catalog.is_planned(choice):
                request = self._catalog.options(choice)
                how = " · ".join(["Load this model", *option_words(request, choice)])
                yield SystemCommand(f"Load {choice.name}", how, partial(self.load, request))

    def load(self, request: LoadRequest) -> None:
        self._app.in_background(self._load, request)

    async def _load(self, request: LoadRequest) -> None:
        app = self._app
        if app.state.snapshot.served:
            if not await self._may_take_over(request.model):
                return
            request = msgspec.structs.replace(request, take_over=True)
        preview = await self._catalog.load(state.of_used(app.state, request))
        if preview.problem is not None:
            app.set_state(state.failed(app.state, preview.problem))

    async def _may_take_over(self, model: str) -> bool:
        """Ask before this Mac leaves the plan of another one; perhaps wait until that one's answers have ended."""
        app, now = self._app, self._app.state.snapshot
        assert now.served
        led, other = now.served, f"Without a load, the chat here can use {now.served.model}."
        effect = f"{led_words(led, now)}.\n\nA load takes this Mac away from {led.led_by}. {other}"
        waits = [f"Wait for {answers_of(led)}, then take over"] if led.answers else []
        answers = ("Cancel", *waits, f"Take over ({broken_words(led)})")
        chosen = await app.choose(f"Load {model} on this Mac?", effect, answers)
        if waits and chosen == 1:
            await served_answers_end(app)
        return chosen > 0

    async def _find(self) -> None:
        await self._show_after(self._catalog.fetch(self._app.state.skipped))

    async def _examine(self, request: PreviewRequest, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._show_after(self._catalog.examine(state.of_used(self._app.state, request)))

    async def _show_after(self, call: Awaitable[None]) -> None:
        try:
            await call
        except MaclusterError as error:
            self._app.show_problem(error.problem)
        if self._catalog.choices is not None:
            self._app.show_models()
