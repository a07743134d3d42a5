"""Filters log lines and writes them as text. Pure."""

from __future__ import annotations

from textwrap import wrap
from typing import Final, NamedTuple

from rich.cells import cell_len

from core.events import LogLine
from tui.state.format import bounded, clock, fit

LEVELS: Final = ("DEBUG", "INFO", "WARN", "ERROR")
CONTINUED: Final = " " * 15 + "↳ "
LEAST_WIDTH: Final = 40


class LogFilter(NamedTuple):
    """Filter of log lines."""

    least: str = "INFO"  # lowest level
    mac: str = ""  # "" for all
    text: str = ""  # in upper or lower case


def is_wanted(line: LogLine, chosen: LogFilter) -> bool:
    return (
        LEVELS.index(line.level) >= LEVELS.index(chosen.least)
        and chosen.mac in ("", line.source)
        and chosen.text.casefold() in f"{line.source} {line.text}".casefold()
    )


def beginning(seen: tuple[LogLine, ...], lines: tuple[LogLine, ...]) -> tuple[int, int]:
    """How many of the first `lines` are already shown by `seen`, and how many of the last of `seen` must be removed,
    because lines of other Macs come before them. Lines that only left at the top count as shown.
    """
    if lines[: len(seen)] == seen:
        return len(seen), 0
    known = set(lines)
    left = [line for line in seen if line in known]
    same = next((n for n, (old, new) in enumerate(zip(left, lines, strict=False)) if old != new), len(left))
    return same, len(seen) - seen.index(left[same]) if same < len(left) else 0


def next_mac(chosen: LogFilter, lines: tuple[LogLine, ...]) -> LogFilter:
    macs = ["", *sorted({line.source for line in lines})]
    at = macs.index(chosen.mac) if chosen.mac in macs else 0
    return chosen._replace(mac=macs[(at + 1) % len(macs)])


def filter_words(chosen: LogFilter, count: int) -> str:
    level = "all levels" if chosen.least == LEVELS[0] else chosen.least
    above = "" if chosen.least in (LEVELS[0], LEVELS[-1]) else " and above"
    lines = f"{count:,} line{'' if count == 1 else 's'}"
    return f"{level}{above} · {chosen.mac or 'all Macs'} · {lines}"


def short_lines(line: LogLine, width: int, *, wraps: bool) -> list[str]:
    """A line in the pane: level of warnings, text, Mac and time; in one row of `width` cells, or wrapped."""
    tail = f"  {fit(line.source, min(8, cell_len(line.source))).rstrip()} {clock(line.at)}"
    text = f"{line.level} {line.text}" if line.level in LEVELS[2:] else line.text
    room = width - cell_len(tail)
    if not wraps or room < LEAST_WIDTH // 2:
        return [fit(text, max(1, room)) + tail]
    first, *rest = wrap(text, room) or [""]
    return [fit(first, room) + tail, *(f"  {row}" for row in wrap(" ".join(rest), room - 2))]


def long_lines(line: LogLine, width: int, *, wraps: bool = True) -> list[str]:
    """A line with milliseconds, wrapped to `width` characters or cut."""
    stamp = f"{clock(line.at, seconds=True)}.{int(bounded(line.at) * 1000) % 1000:03}"
    whole = f"{stamp} {line.level:<5} {fit(line.source, 8)} {line.text}"
    if len(whole) <= width or width < LEAST_WIDTH:
        return [whole]
    if not wraps:
        return [fit(whole, width)]
    first, *rest = wrap(whole, width, drop_whitespace=True) or [""]
    rest = wrap(" ".join(rest), width - len(CONTINUED))
    return [first, *(CONTINUED + row for row in rest)]
