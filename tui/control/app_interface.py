"""What the controllers know of the app: the state, the node's client, and ways to reach the person."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVarTuple

from core.errors import Problem
from tui.client import NodeClient
from tui.state.state import UiState

Args = TypeVarTuple("Args")


class PromptInterface(Protocol):
    """The line in which the person asks."""

    text: str

    def focus(self) -> object:
        """Write there."""

    def put(self, text: str) -> None:
        """Write `text` there, in the place of what there is."""

    def taken(self) -> None:
        """What was written is sent."""

    def lend(self, text: str) -> None:
        """Write `text` there to be changed."""

    def give_back(self) -> None:
        """What was there before `lend`."""


class AppInterface(Protocol):
    """The app as its controllers see it."""

    client: NodeClient
    state: UiState

    @property
    def prompt(self) -> PromptInterface:
        """Where the person writes."""

    def set_state(self, new: UiState) -> None:
        """Take and draw a state."""

    def show_answer(self) -> None:
        """Draw what the answer has more in `state`; a tick draws the rest."""

    def show_models(self) -> None:
        """Draw the catalog anew where it is shown."""

    def notify(self, message: str) -> None:
        """Say something in passing; it is no markup."""

    def show_problem(self, problem: Problem) -> None:
        """Say what failed."""

    def in_background(
        self,
        work: Callable[[*Args], Coroutine[Any, Any, object]],
        *args: *Args,
        group: str = "commands",
        exclusive: bool = False,
    ) -> None:
        """Run `work` beside everything else; the person is told what fails. `exclusive`: in the place of what runs in
        that `group`.
        """

    async def choose(self, title: str, effect: str, answers: tuple[str, ...]) -> int:
        """The number of the answer that the person chooses; the first one changes nothing. Only `in_background`."""

    async def ask(self, title: str, words: str, value: str = "", check: Callable[[str], object] = str) -> str | None:
        """The line that the person types, None for none; one for which `check` raises a UsageError will not do. Only
        `in_background`.
        """

    def open_screen(self, name: str, **details: object) -> None:
        """Open the screen of that name; `details` are for it alone: one that is open makes room for one with them."""

    async def break_off(self) -> None:
        """End what open screens have begun with other Macs."""

    def copy_to_clipboard(self, text: str) -> None:
        """Copy through the terminal."""

    def exit(self) -> None:
        """End the app."""
