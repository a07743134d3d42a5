"""What a person can do about the models: see how they fit, examine one, load one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from textual.app import SystemCommand

from core.requests import LoadRequest, PreviewRequest
from tui.control.bridge import FAILURES
from tui.screens.table import is_open
from tui.state import state
from tui.widgets.messages import ModelChosen

if TYPE_CHECKING:
    from tui.app import MaclusterApp
    from tui.screens.models import ModelsScreen

# the cursor moves on sooner than that where nobody reads
EXAMINE_AFTER_S: Final = 0.4


class ModelController:
    """Keeps the catalog of `app` as the node knows it, and the picker as the catalog is."""

    def __init__(self, app: MaclusterApp) -> None:
        self._app = app

    def find(self) -> None:
        """Ask what is there, and how it fits."""
        # made when it begins: one that is replaced before that leaves nothing behind
        find: Any = self._find
        self._app.run_worker(find, group="models", exclusive=True, exit_on_error=False)

    def examine(self, wish: PreviewRequest, *, at_once: bool) -> None:
        """Plan one model of the picker with what examining it shows; unless `at_once`, when the cursor has rested."""
        work = self._examine(wish, 0.0 if at_once else EXAMINE_AFTER_S)
        self._app.run_worker(work, group="examine", exclusive=True, exit_on_error=False)

    def advise(self) -> None:
        """Say below the split what a person should read about it."""
        advise: Any = self._advise
        self._app.run_worker(advise, group="advice", exclusive=True, exit_on_error=False)

    def offers(self) -> Iterator[SystemCommand]:
        """For the palette: a "Load" for every model that fits."""
        for choice in self._app.catalog.choices or ():
            if choice.preview.plan is not None and not choice.loaded:
                load = partial(self._app.post_message, ModelChosen(self._app.catalog.wish(choice)))
                yield SystemCommand(f"Load {choice.name}", "Load this model", load)

    async def load(self, wish: LoadRequest) -> None:
        """Load one over the Macs that are used. Raises what `tui.control.bridge.FAILURES` lists."""
        app = self._app
        preview = await app.catalog.load(state.of_used(app.state, wish))
        if preview.problem is not None:
            app.set_state(state.failed(app.state, preview.problem))

    async def _find(self) -> None:
        await self._app.report_failure_of(self._app.catalog.fetch(self._app.state.skipped))
        self._show()

    async def _examine(self, wish: PreviewRequest, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self._app.report_failure_of(self._app.catalog.examine(state.of_used(self._app.state, wish)))
        self._show()

    async def _advise(self) -> None:
        now, advice = self._app.state.snapshot, ""
        if now.plan is not None and now.plan_status == "ready":
            with suppress(*FAILURES):  # a node that does not answer is told of elsewhere
                advice = await self._app.catalog.advice_on(now.plan, now.peers)
        self._app.dashboard.split.advise(advice)

    def _show(self) -> None:
        for screen in self._app.screen_stack:
            if is_open(screen, "models") and self._app.catalog.choices is not None:
                cast("ModelsScreen", screen).show_choices()
