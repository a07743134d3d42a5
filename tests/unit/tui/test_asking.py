"""Questions to a person at a terminal without a screen."""

from __future__ import annotations

import io
import sys

import pytest

from tui.cli.asking import choice_of


@pytest.mark.parametrize(
    ("typed", "means"), [("split\n", "split"), (" WHOLE \n", "whole"), ("\n", "whole"), ("x\n", "whole"), ("", "whole")]
)
async def test_a_choice_is_a_word_that_is_offered_else_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, means: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert await choice_of({"whole": "all of it\x1b[2J", "split": "a part each"}) == means
    asked = capsys.readouterr().err
    assert "whole or split? [whole]" in asked
    assert "\x1b" not in asked
