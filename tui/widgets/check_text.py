"""Text of the check screen. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from textual.content import Content

from core.requests.checks import Finding
from tui.state.format import DIM, WARN, finding_mark, fit, plural
from tui.widgets.text_view import title_line

_WORD, _NAME = 10, 14
_INDENT = 2 + _WORD + _NAME


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
    mark = finding_mark(finding.state)
    head = Content.assemble(
        (fit(f"{mark.glyph} {mark.word}", _WORD + 2), mark.style), (fit(finding.name, _NAME - 1) + " ", "bold")
    )
    lines = [head + _hung(finding.what, width)]
    if finding.fix:
        style = DIM if finding.state in ("ok", "unknown") else WARN
        lines.append(Content(" " * _INDENT) + _hung(f"→ {finding.fix}", width).stylize(style))
    return Content("\n").join(lines)


def _hung(text: str, width: int) -> Content:
    lines = textwrap.wrap(text, max(20, width - _INDENT)) or [""]
    return Content(("\n" + " " * _INDENT).join(lines))
