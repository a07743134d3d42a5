"""Themes: all text is readable, and a theme that is only previewed is not saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from rich.cells import cell_len
from rich.style import Style
from textual.color import Color
from textual.command import CommandPalette
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from core.events import Snapshot
from core.requests.answers import Message
from screenshots import recording
from screenshots.recording import ReplayingClient
from screenshots.scenes import until
from tests.support.app import app_with, text_of
from tui.app import MaclusterApp
from tui.control import themes
from tui.state import conversation

ALL = (*BUILTIN_THEMES, *(theme.name for theme in themes.OWN_THEMES))
THEMES = [name for name in ALL if "ansi" not in name]


@pytest.mark.parametrize("name", ALL)
def test_stages_that_are_next_to_each_other_differ(name: str) -> None:
    app = app_with(Snapshot())
    app.theme = name
    colours = app.get_css_variables()
    assert Color.parse(colours["stage-1"]) != Color.parse(colours["stage-2"])


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


# ours, and those in which a dialog was hard to read once
HARD = (*(theme.name for theme in themes.OWN_THEMES), "tokyo-night", "atom-one-light")


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [pytest.param(HARD, id="hard"), pytest.param(THEMES, id="all", marks=pytest.mark.nightly)]
)
async def test_all_that_is_drawn_can_be_read_in_every_theme(names: Sequence[str]) -> None:
    told = recording.load("main").state
    said = (Message(role="user", content="hi"), Message(role="assistant", content=CODE))
    app = app_with(told.snapshot)
    async with app.run_test(size=(120, 36)) as pilot:
        app.set_state(conversation.taken_up(told, said, 100.0))
        app.open_screen("sampling")
        await pilot.pause()
        for app.theme in names:
            await pilot.pause()
            for screen in app.screen_stack:
                hard = [(text, seen) for _, text, seen in _written(screen) if seen < 4.5]
                assert (app.theme, hard) == (app.theme, [])


DIALOGS = (
    ("pair('STRANGER')", "#pairing", "six digits"),
    ("help", "#help", "Send the message"),
    ("command_palette", "#--input, CommandList", "Choose a model"),
)


@pytest.mark.parametrize(("opens", "boxes", "words"), [pytest.param(*each, id=each[0][:4]) for each in DIALOGS])
@pytest.mark.slow
async def test_what_a_dialog_says_can_be_read_and_what_it_covers_is_not_to_be(
    opens: str, boxes: str, words: str
) -> None:
    told = recording.load("pairing")
    app = MaclusterApp(ReplayingClient(told))
    async with app.run_test(size=(120, 36)) as pilot:
        await until(lambda: app.state.attached, pilot)
        app.set_state(told.state)
        stranger = next(peer for peer in told.state.snapshot.peers if peer.trust in ("unpaired", "seen"))
        for app.theme in HARD:
            await app.run_action(opens.replace("STRANGER", stranger.device_id))
            await until(lambda: words in text_of(app), pilot, every_s=0.01)
            regions = [box.region for box in app.screen.query(boxes)]
            for at, text, seen in _written(app.screen):
                is_said = any(region.contains(*at) for region in regions)
                assert seen >= 4.5 if is_said else seen <= 2, (app.theme, text, seen)
            await app.pop_screen()


async def test_a_theme_is_seen_while_the_cursor_is_on_it_and_kept_if_it_is_chosen() -> None:
    app = app_with(Snapshot())
    async with app.run_test(size=(80, 24)) as pilot:
        before = app.theme
        app.search_themes()
        await until(lambda: isinstance(app.screen, CommandPalette), pilot)
        await pilot.press(*"nord")
        await until(lambda: app.theme == "nord", pilot)
        await pilot.pause()
        ink = Color.parse(app.get_css_variables()["foreground"])
        assert (app.screen.styles.color, app.screen.styles.background.a) == (ink, 0), "a clear view of it"
        await pilot.press("escape")
        await until(lambda: app.theme == before, pilot)


def _written(screen: Screen[object]) -> Iterator[tuple[tuple[int, int], str, float]]:
    """The place of each text, the text, and its contrast."""
    for y, strip in enumerate(screen._compositor.render_strips()):
        x = 0
        for text, style, _ in strip:
            if style and any(map(str.isalnum, text)):
                yield (x, y), text, _contrast(style)
            x += cell_len(text)


def _contrast(style: Style) -> float:
    assert style.color
    assert style.bgcolor
    return themes.contrast(*(Color(*c.get_truecolor()) for c in (style.color, style.bgcolor)))
