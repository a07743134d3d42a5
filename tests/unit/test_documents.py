"""The documents stay short, in short sentences, and their links lead to existing files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "kilobytes"),
    [("README.md", 10), ("SECURITY.md", 10), ("CONTRIBUTING.md", 4), ("CHANGELOG.md", 4), ("tui/README.md", 10)],
)
def test_a_page_is_short(page: str, kilobytes: int) -> None:
    assert len((ROOT / page).read_bytes()) <= kilobytes << 10


def test_the_readme_has_short_lines_and_short_sentences() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 180
    prose = re.sub(r"```.*?```|!\[[^]]*\]\([^)]*\)|^[|#].*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    sentences = [each.split() for each in re.split(r"(?<=[.!?])\s+|\n\s*\n|^- |^\d\. ", prose, flags=re.MULTILINE)]
    words = [len(each) for each in sentences if len(each) > 1]
    assert sum(words) / len(words) <= 18


def test_every_link_leads_somewhere() -> None:
    pages = [p for p in ROOT.rglob("*.md") if not {".venv", "build", "dist"} & set(p.relative_to(ROOT).parts)]
    assert len(pages) > 15
    for page in pages:
        shown = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)", shown):
            assert link.startswith(("http://", "https://")) or (page.parent / link).exists(), f"{page}: {link}"
