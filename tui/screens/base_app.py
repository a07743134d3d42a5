"""Base of the app for controllers and screens."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rich.text import Text
from textual.app import App
from textual.content import Content
from textual.notifications import SeverityLevel
from textual.worker import WorkerFailed

from core.errors import MaclusterError, Problem
from tui.control import crash
from tui.control.app_interface import Args
from tui.screens.base import Interruptible, NodeScreen
from tui.state.state import cleaned


class BaseApp(App[None], inherit_bindings=False):
    """Background work, dialogs and toasts for controllers and screens; `folder` is for crash reports."""

    folder: Path

    def in_background(
        self,
        work: Callable[[*Args], Coroutine[Any, Any, object]],
        *args: *Args,
        group: str = "commands",
        exclusive: bool = False,
    ) -> None:
        """Run `work` in the background and report failures. `exclusive`: cancel other work of that `group`."""

        # the coroutine is made when the work starts: replaced work leaves no unused coroutine
        async def run() -> None:
            try:
                await work(*args)
            except MaclusterError as error:
                self.show_problem(error.problem)

        begin: Any = run
        self.run_worker(begin, group=group, exclusive=exclusive, exit_on_error=False)

    async def choose(self, title: str, effect: str, answers: tuple[str, ...]) -> int:
        from tui.screens.dialogs import ChoiceScreen

        return await self.push_screen_wait(ChoiceScreen(title, Content(effect), answers))

    async def ask(self, title: str, words: str, value: str = "", check: Callable[[str], object] = str) -> str | None:
        """Ask for a line; None if cancelled. If `check` raises a UsageError, the line isn't accepted."""
        from tui.screens.dialogs import AskScreen

        return await self.push_screen_wait(AskScreen(title, words, value, check=check))

    async def break_off(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, Interruptible):
                await screen.break_off()

    def show_models(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, NodeScreen):
                screen.show_choices()

    def show_problem(self, problem: Problem) -> None:
        problem = cleaned(problem)
        self.notify(f"{problem.what}\n{problem.fix}".rstrip(), severity="error")

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a toast, once if repeated. Unlike Textual's, it never parses markup: texts come from elsewhere."""
        for same in [said for said in self._notifications if said.message == message]:
            self._unnotify(same, refresh=False)
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def _fatal_error(self) -> None:
        assert self._exception is not None
        error = self._exception.error if isinstance(self._exception, WorkerFailed) else self._exception
        self._exit_renderables.append(Text(crash.write(error, self.folder)))
        self._close_messages_no_wait()
