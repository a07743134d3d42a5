"""The check screen: findings about this Mac, its node and its network."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from core.requests.checks import Finding
from tui.control.event_stream import FAILURES, problem_of
from tui.control.keymap import CHECK
from tui.control.messages import Copied
from tui.screens.base import NodeScreen, Sources, titled
from tui.state.state import cleaned
from tui.widgets.check_text import check_content, check_text, check_title
from tui.widgets.text_view import TextView


class CheckScreen(NodeScreen):
    """A report that grows while the node checks."""

    TITLE = "Check this Mac"
    AUTO_FOCUS = "#findings"
    ACTIONS = CHECK

    HELP = """Why no other Mac is found or connects, and what to do. ✓ ok, ▲ warning, ✗ problem, – unknown: \
it can't be checked here.

`macluster doctor` prints the same, even if macluster's service isn't running."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._findings: tuple[Finding, ...] = ()
        self._is_running = False
        self._text = TextView()
        self._box = titled(VerticalScroll(self._text, id="findings"), "Findings")

    def parts(self) -> ComposeResult:
        yield self._box

    def on_mount(self) -> None:
        self.action_again()

    def action_again(self) -> None:
        if not self._is_running:
            self._findings, self._is_running = (), True
            self.run_worker(self._check(), group="check", exit_on_error=False)
            self.redraw()

    def action_copy_report(self) -> None:
        if self._findings:
            self.post_message(Copied(check_text(self._findings)))
        else:
            self.app.notify("There is nothing to copy yet.")

    async def _check(self) -> None:
        try:
            async for finding in self._client.check():
                self._findings = (*self._findings, cleaned(finding))
                self.redraw()
        except FAILURES as error:
            self._sources.show_problem(problem_of(error))
        finally:
            self._is_running = False
            self.redraw()

    def _draw(self, width: int) -> None:
        self._title.draw(check_title(self._findings, width, is_running=self._is_running))
        inside = self._box.scrollable_content_region.width
        self._text.draw(check_content(self._findings, inside, is_running=self._is_running))
