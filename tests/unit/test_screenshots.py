"""The pictures of the README are what the app draws: every screen, at both sizes, in three themes, to the letter."""

from __future__ import annotations

import pytest

from screenshots.draw import TEXTS, look
from screenshots.scenes import SCENES, SIZES

EVERY = [pytest.param(name, size, id=f"{name}-{size[0]}x{size[1]}") for name in SCENES for size in SIZES]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), EVERY)
async def test_the_picture_is_current(name: str, size: tuple[int, int]) -> None:
    kept = (TEXTS / f"{name}-{size[0]}x{size[1]}.txt").read_text()
    assert await look(name, size) == kept, "see it with `make screenshots`"
