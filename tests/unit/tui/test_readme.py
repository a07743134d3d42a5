"""tui/README.md: its key table is the key map, and its pictures exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.key_table import key_table

README = Path(__file__).parents[3] / "tui" / "README.md"


def test_the_key_table_is_the_key_map() -> None:
    assert key_table() in README.read_text(), "write it with `python -m tests.key_table`"


def test_every_picture_exists_and_the_page_is_short() -> None:
    text = README.read_text()
    links = re.findall(r"\]\((\.\./[^)]+)\)", text)
    assert len(links) > 15
    assert all((README.parent / link).is_file() for link in links)
    assert len(text.encode()) <= 10_240
