"""Interfaces of the app for its controllers: state, node client, dialogs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVarTuple

from core.errors import Problem
from tui.client import NodeClient
from tui.state.state import UiState

Args = TypeVarTuple("Args")
LOOK_S: Final = 0.5


class PromptInterface(Protocol):
    """The prompt, as controllers use it."""

    text: str

    def focus(self) -> object: ...

    def put(self, text: str) -> None: ...

    def taken(self) -> None: ...  # the text was sent

    def lend(self, text: str) -> None: ...  # for editing, until `give_back`

    def give_back(self) -> None: ...


class AppInterface(Protocol):
    """The app as its controllers see it."""

    client: NodeClient
    state: UiState
    theme: str

    @property
    def prompt(self) -> PromptInterface: ...

    def set_state(self, new: UiState) -> None: ...  # and draw it

    def show_answer(self) -> None: ...

    def show_models(self) -> None: ...

    def notify(self, message: str) -> None: ...  # never markup

    def show_problem(self, problem: Problem) -> None: ...

    def in_background(
        self,
        work: Callable[[*Args], Coroutine[Any, Any, object]],
        *args: *Args,
        group: str = "commands",
        exclusive: bool = False,
    ) -> None:
        """Run `work` in the background and report failures. `exclusive`: cancel other work of that `group`."""

    async def choose(self, title: str, effect: str, answers: tuple[str, ...]) -> int:
        """Ask for a choice; returns its number, the first one changes nothing. Only `in_background`."""

    async def ask(self, title: str, words: str, value: str = "", check: Callable[[str], object] = str) -> str | None:
        """Ask for a line; None if cancelled. `check` raises UsageError for a wrong one. Only `in_background`."""

    def open_screen(self, name: str, **details: object) -> None: ...

    async def break_off(self) -> None: ...  # what open screens started with other Macs

    def copy_to_clipboard(self, text: str) -> None: ...

    def exit(self) -> None: ...


async def served_answers_end(app: AppInterface) -> None:
    """Wait until no answer runs of the plan that this Mac serves."""
    while (served := app.state.snapshot.served) and served.answers:  # noqa: ASYNC110 - another Mac reports it
        await asyncio.sleep(LOOK_S)
