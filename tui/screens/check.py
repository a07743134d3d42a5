"""The check screen: findings about this Mac, its node and its network."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from core.errors import MaclusterError
from core.requests.checks import Finding
from tui.control.keymap import CHECK
from tui.control.messages import Copied
from tui.screens.base import NodeScreen, Sources, titled
from tui.state.format import DIM, FINDING_MARKS, WARN, fit, plural
from tui.state.state import cleaned
from tui.widgets.text_view import TextView, title_line

_WORD, _NAME = 10, 14
_INDENT = 2 + _WORD + _NAME


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
        except MaclusterError as error:
            self._sources.show_problem(error.problem)
        finally:
            self._is_running = False
            self.redraw()

    def _draw(self, width: int) -> None:
        self._title.draw(check_title(self._findings, width, is_running=self._is_running))
        inside = self._box.scrollable_content_region.width
        self._text.draw(check_content(self._findings, inside, is_running=self._is_running))


def check_title(findings: Sequence[Finding], width: int, *, is_running: bool) -> Content:
    wrong, beware = (sum(f.state == state for f in findings) for state in ("bad", "warn"))
    counts = [f"✗ {plural(wrong, 'problem')}"] * bool(wrong) + [f"▲ {plural(beware, 'warning')}"] * bool(beware)
    fine = "✓ no problems" if findings else "○ not checked yet"
    right = "◌ checking" if is_running else " · ".join(counts) or fine
    return title_line("Check this Mac", right, width)


def check_content(findings: Sequence[Finding], width: int, *, is_running: bool) -> Content:
    """A paragraph a finding, in `width` cells (at least 40)."""
    parts = [_finding(each, width) for each in findings]
    if is_running:
        parts.append(Content.styled(f"◌ checking, {plural(len(findings), 'finding')} so far", DIM))
    elif not findings:
        parts.append(Content.styled("Nothing was reported. r checks again.", DIM))
    return Content("\n").join(parts)


def check_text(findings: Sequence[Finding]) -> str:
    return check_content(findings, 100, is_running=False).plain


def _finding(finding: Finding, width: int) -> Content:
    mark = FINDING_MARKS[finding.state]
    word, name = fit(f"{mark.glyph} {mark.word}", _WORD + 2), fit(finding.name, _NAME - 1) + " "
    head = Content.assemble((word, mark.style), (name, "bold"))
    lines = [head + _hung(finding.what, width)]
    if finding.fix:
        style = DIM if finding.state in ("ok", "unknown") else WARN
        lines.append(Content(" " * _INDENT) + _hung(f"→ {finding.fix}", width).stylize(style))
    return Content("\n").join(lines)


def _hung(text: str, width: int) -> Content:
    lines = textwrap.wrap(text, max(20, width - _INDENT)) or [""]
    return Content(("\n" + " " * _INDENT).join(lines))
