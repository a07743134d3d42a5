"""The moving picture of the README: an answer that survives a pulled cable.

A recording has the node's events with their times. They are played to today's app, and its screens become one SVG that
moves by itself.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

import msgspec
from msgspec.structs import replace
from rich.cells import cell_len
from rich.style import Style
from textual.color import Color
from textual.strip import Strip

from core.events import AnyEvent, Recovery
from screenshots import recording
from screenshots.recording import RECORDINGS, Recording, ReplayingClient
from screenshots.scenes import NOTE, settled, standing_still, still, until
from tui.app import MaclusterApp
from tui.state import state
from tui.state.state import UiState

NAME: Final = "survives"
_REPLIES: Final = "lost"  # the recording with the node's replies meanwhile
SIZE: Final = (100, 36)
FRAME_S: Final = 0.4
LAST_S: Final = 4.0  # how long the end is shown
_WIDTH, _HEIGHT, _EDGE = 8.4, 18.0, 12.0  # of a cell, and around all, in pixels
_FONTS: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"

Row = tuple[tuple[str, str, str, bool], ...]  # text, its colour, that of its ground, whether it is bold


class Played(msgspec.Struct, frozen=True):
    """UI state at `at`, and the node's later events: seconds since the epoch. A Mac was lost at `lost_at`."""

    state: UiState
    at: float
    lost_at: float
    events: tuple[tuple[float, AnyEvent], ...]

    @property
    def moments(self) -> tuple[float, ...]:
        count = int((self.events[-1][0] - self.at) / FRAME_S) + 2
        return tuple(self.at + FRAME_S * number for number in range(count))


def load() -> Played:
    return msgspec.json.decode((RECORDINGS / f"{NAME}.json").read_bytes(), type=Played)


def save(played: Played) -> None:
    (RECORDINGS / f"{NAME}.json").write_bytes(msgspec.json.encode(played))


async def play(played: Played, moments: Iterable[float]) -> list[list[Row]]:
    """The app's screen at these moments, row by row."""
    client = ReplayingClient(Recording(state=played.state, at=played.at, replies=recording.load(_REPLIES).replies))
    frames, now, waiting = [], played.at, list(played.events)
    with standing_still(played.at), TemporaryDirectory() as folder, patch("time.time", lambda: now):
        app = MaclusterApp(client, note=NOTE, folder=Path(folder))
        app.animation_level = "none"
        async with app.run_test(size=SIZE) as pilot:
            await until(lambda: app.state.attached, pilot)
            shown = replace(played.state, ticked_at=played.at)
            for now in moments:
                while waiting and waiting[0][0] <= now:
                    at, event = waiting.pop(0)
                    shown = state.fold(shown, event, at)
                app.set_state(_ticked(shown, now))
                app.dashboard.logs.show(app.state)
                still(app)
                await settled(app, pilot, looks=2)
                frames.append([_row(strip) for strip in app.screen._compositor.render_strips()])
    if client.missing:
        raise LookupError(f"The recording {_REPLIES} lacks {client.missing}; run `make screenshots`.")
    return frames


def _ticked(shown: UiState, now: float) -> UiState:
    return replace(shown, ticked_at=now)


def _row(strip: Strip) -> Row:
    cells = [(segment.text, *_colours(segment.style), bool(segment.style and segment.style.bold)) for segment in strip]
    joined = groupby(cells, key=lambda cell: cell[1:])
    return tuple(("".join(text for text, *_ in run), *look) for look, run in joined)


def _colours(style: Style | None) -> tuple[str, str]:
    fore, back = (
        (each and Color(*each.get_truecolor()).hex) or "" for each in (style and style.color, style and style.bgcolor)
    )
    return (back, fore) if style and style.reverse else (fore, back)


def svg(frames: list[list[Row]], words: list[str]) -> str:
    """One picture of all frames, each with a line of `words` below it."""
    rows: dict[str, int] = {}
    ground = frames[0][0][0][2]
    width, height = SIZE[0] * _WIDTH + 2 * _EDGE, (SIZE[1] + 2) * _HEIGHT + 2 * _EDGE
    films = []
    for number, (frame, said) in enumerate(zip(frames, words, strict=True)):
        drawn = ["".join(_spans(row, ground)) for row in frame]
        drawn.append(f'<tspan x="0" fill="#F2A65A">{html.escape(said)}</tspan>')
        uses = "".join(
            f'<use href="#r{rows.setdefault(row, len(rows))}" y="{_HEIGHT * (y + (y == SIZE[1])):g}"/>'
            for y, row in enumerate(drawn)
            if row
        )
        films.append(f'<g transform="translate(0 {height * number:g})">{uses}</g>')
    defined = "".join(f'<g id="r{number}">{_line(row)}</g>' for row, number in rows.items())
    seconds = FRAME_S * len(frames) + LAST_S
    steps = "".join(
        f"{100 * FRAME_S * number / seconds:.3f}%{{transform:translateY({-height * number:g}px)}}"
        for number in range(len(frames))
    )
    size = f'width="{width:g}" height="{height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" {size}>'
        f"<style>text{{font:14px {_FONTS};white-space:pre}}.b{{font-weight:bold}}"
        f".film{{animation:film {seconds:g}s step-end infinite}}@keyframes film{{{steps}}}</style>"
        f'<defs>{defined}</defs><rect width="100%" height="100%" rx="10" fill="{ground}"/>'
        f'<svg x="{_EDGE:g}" y="{_EDGE:g}" width="{width - 2 * _EDGE:g}" height="{height - 2 * _EDGE:g}">'
        f'<g class="film">{"".join(films)}</g></svg></svg>'
    )


def _line(row: str) -> str:
    grounds, texts = row.split("\0") if "\0" in row else ("", row)
    return f'{grounds}<text y="13" xml:space="preserve">{texts}</text>'


def _spans(row: Row, ground: str) -> Iterator[str]:
    at, grounds, texts = 0, [], []
    for text, fore, back, bold in row:
        cells = cell_len(text)
        if back != ground:
            grounds.append(f'<rect x="{at * _WIDTH:g}" width="{cells * _WIDTH:g}" height="{_HEIGHT:g}" fill="{back}"/>')
        if text.strip():
            lead = len(text) - len(text.lstrip())
            body = text.strip()
            look = ' class="b"' if bold else ""
            texts.append(
                f'<tspan x="{(at + lead) * _WIDTH:g}" textLength="{cell_len(body) * _WIDTH:g}" fill="{fore}"{look}>'
                f"{html.escape(body)}</tspan>"
            )
        at += cells
    if texts or grounds:
        yield "".join(grounds) + "\0" + "".join(texts)


def words_at(played: Played, moment: float) -> str:
    if moment < played.lost_at:
        return "Three Macs write an answer together."
    if any(isinstance(event, Recovery) and event.state == "running" and at <= moment for at, event in played.events):
        return "The other two continue the same answer, with the same words."
    return "One Mac is unplugged in the middle of the answer."


async def picture() -> str:
    played = load()
    frames = await play(played, played.moments)
    return svg(frames, [words_at(played, moment) for moment in played.moments])
