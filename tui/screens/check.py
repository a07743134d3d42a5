"""The check screen: findings about this Mac, its node and its network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from core.requests.checks import Finding
from tui.control.event_stream import FAILURES, problem_of
from tui.control.keymap import CHECK
from tui.control.messages import Copied, Failed, Noted
from tui.screens.base import SizedScreen
from tui.state.state import cleaned
from tui.widgets.check_text import check_content, check_text, check_title
from tui.widgets.text_view import TextView

if TYPE_CHECKING:
    from tui.client import NodeClient


class CheckScreen(SizedScreen):
    """A report that grows while the node checks."""

    TITLE = "Check this Mac"
    CSS_PATH = "check.tcss"
    AUTO_FOCUS = "#findings"
    ACTIONS = CHECK

    HELP = """Why no other Mac is found or connects, and what to do. ✓ ok, ▲ warning, ✗ problem, – unknown: \
it can't be checked here.

`macluster doctor` prints the same, even if macluster's service isn't running."""

    def __init__(self, client: NodeClient) -> None:
        super().__init__()
        self._client = client
        self._findings: tuple[Finding, ...] = ()
        self._is_running = False
        self._text = TextView()
        self._box = VerticalScroll(self._text, id="findings", classes="pane")

    def parts(self) -> ComposeResult:
        yield self._box

    def on_mount(self) -> None:
        self._box.border_title = Content("Findings")
        self.action_again()

    def action_again(self) -> None:
        if not self._is_running:
            self._findings, self._is_running = (), True
            self.run_worker(self._check(), group="check", exit_on_error=False)
            self._draw()

    def action_copy_report(self) -> None:
        if self._findings:
            self.post_message(Copied(check_text(self._findings)))
        else:
            self.post_message(Noted("There is nothing to copy yet."))

    async def _check(self) -> None:
        try:
            async for finding in self._client.check():
                self._findings = (*self._findings, cleaned(finding))
                self._draw()
        except FAILURES as error:
            self.post_message(Failed(problem_of(error)))
        finally:
            self._is_running = False
            self._draw()

    def _draw(self) -> None:
        width = self._box.scrollable_content_region.width
        if not self.is_mounted or width <= 0:
            return
        self._title.draw(check_title(self._findings, self._title.size.width, is_running=self._is_running))
        self._text.draw(check_content(self._findings, width, is_running=self._is_running))
