"""Themes: all that is written can be read, and one that is only looked at is not kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.style import Style
from textual.color import Color
from textual.command import CommandPalette
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from core.events import Snapshot
from core.requests.answers import Message
from screenshots import recording
from screenshots.scenes import until
from tests.support.app import app_with
from tui.control import themes
from tui.state import conversation

THEMES = [name for name in (*BUILTIN_THEMES, *(theme.name for theme in themes.OWN_THEMES)) if "ansi" not in name]


@pytest.mark.parametrize("name", THEMES)
def test_every_colour_of_text_can_be_read_on_every_ground(name: str) -> None:
    app = app_with(Snapshot())
    app.theme = name
    colours = app.get_css_variables()
    for ink in themes._INKS:
        for ground in themes._GROUNDS:
            assert themes.contrast(Color.parse(colours[ink]), Color.parse(colours[ground])) >= 4.5, (ink, ground)


def test_contrast_is_that_of_wcag() -> None:
    table = (("#FFFFFF", "#000000", 21.0), ("#777777", "#FFFFFF", 4.478), ("#0000FF", "#FFFFFF", 8.592))
    for one, other, ratio in table:
        assert themes.contrast(Color.parse(one), Color.parse(other)) == pytest.approx(ratio, abs=1e-3)


CODE = """`one` thing:

```python
@told  # once
class Mac(Peer):
    name: str = "studio"
    def layers(self, first: int = 0) -> None:
        return None if first > 1.5 else raise_it(f"{self}")
```
"""


@pytest.mark.slow
async def test_all_that_is_drawn_can_be_read_in_every_theme() -> None:
    told = recording.load("main").state
    said = (Message(role="user", content="hi"), Message(role="assistant", content=CODE))
    app = app_with(told.snapshot)
    async with app.run_test(size=(120, 36)) as pilot:
        app.set_state(conversation.taken_up(told, said, 100.0))
        app.open_screen("sampling")
        await pilot.pause()
        for app.theme in THEMES:
            await pilot.pause()
            for screen in app.screen_stack:
                assert (app.theme, [*_hard_to_read(screen)]) == (app.theme, [])


async def test_a_theme_is_seen_while_the_cursor_is_on_it_and_kept_if_it_is_chosen() -> None:
    app = app_with(Snapshot())
    async with app.run_test(size=(80, 24)) as pilot:
        before = app.theme
        app.search_themes()
        await until(lambda: isinstance(app.screen, CommandPalette), pilot)
        await pilot.press(*"nord")
        await until(lambda: app.theme == "nord", pilot)
        await pilot.press("escape")
        await until(lambda: app.theme == before, pilot)


def _hard_to_read(screen: Screen[object]) -> Iterator[tuple[str, float]]:
    for strip in screen._compositor.render_strips():
        for text, style, _ in strip:
            if style and any(map(str.isalnum, text)) and (seen := _contrast(style)) < 4.5:
                yield text, seen


def _contrast(style: Style) -> float:
    assert style.color
    assert style.bgcolor
    return themes.contrast(*(Color(*c.get_truecolor()) for c in (style.color, style.bgcolor)))
