"""tui/cli/README.md lists every command and option of the parser."""

from __future__ import annotations

from pathlib import Path

from tests.command_reference import command_reference

README = Path(__file__).parents[3] / "tui" / "cli" / "README.md"


def test_the_readme_is_the_parser() -> None:
    written = "write it: python -m tests.command_reference > tui/cli/README.md"
    assert README.read_text("utf-8") == command_reference(), written
