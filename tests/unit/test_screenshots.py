"""The pictures of the README equal the app's screens, to the letter: each in two sizes, and nightly in three themes."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from screenshots import moving
from screenshots.draw import TEXTS, look
from screenshots.png import HERE
from screenshots.scenes import SCENES, SIZES, THEMES


@pytest.mark.slow
@pytest.mark.parametrize(
    "themes", [pytest.param(THEMES[:1], id="one"), pytest.param(THEMES, id="all", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("name", SCENES)
async def test_the_pictures_are_current(name: str, themes: Sequence[str]) -> None:
    kept = {file.stem: in_themes(file.read_text(), len(themes)) for file in TEXTS.glob(f"{name}-*.txt")}
    assert len(kept) == len(SIZES)
    assert await look(name, themes) == kept, "see it with `make screenshots`"


def in_themes(kept: str, count: int) -> str:
    """The kept text of a picture with the colours of that many themes."""
    return "--- ".join(kept.split("--- ")[: count + 1])


@pytest.mark.slow
async def test_the_moving_picture_still_draws_an_answer_that_survives() -> None:
    played = moving.load()
    ends = (played.at, played.lost_at + moving.FRAME_S, played.moments[-1])
    frames = await moving.play(played, ends)
    before, lost, after = ("\n".join("".join(text for text, *_ in row) for row in frame) for frame in frames)
    assert "3 of 3 Macs" in before
    assert "mini is offline" in lost
    assert "recovered: mini left" in after
    assert "Continue on" not in after
    picture = ElementTree.fromstring(moving.svg(frames, [moving.words_at(played, moment) for moment in ends]))
    assert "One Mac is unplugged" in "".join(picture.itertext())
    assert (HERE / f"{moving.NAME}.svg").stat().st_size < 1_000_000
