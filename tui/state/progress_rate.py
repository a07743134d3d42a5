"""Progress of long work: its rate, the time left, and the words for both. Pure."""

from __future__ import annotations

from core.events import Value
from tui.state.bars import gauge
from tui.state.format import age, gigabytes

BAR = 16


class Pace(Value, frozen=True, kw_only=True):
    """Progress of work that takes a while."""

    done: int
    total: int
    at: float  # seconds since the epoch
    first: int  # `done` at `since`
    since: float

    @property
    def per_s(self) -> float | None:
        """Progress per second; None before anything moved."""
        done, for_s = self.done - self.first, self.at - self.since
        return done / for_s if done > 0 and for_s > 0 else None

    @property
    def left_s(self) -> float | None:
        return (self.total - self.done) / self.per_s if self.per_s else None


def moved(before: Pace | None, done: int, total: int, now: float) -> Pace:
    if before is None or done < before.done or total != before.total:
        return Pace(done=done, total=total, at=now, first=done, since=now)
    return Pace(done=done, total=total, at=now, first=before.first, since=before.since)


def left_words(left_s: float | None) -> list[str]:
    return [] if left_s is None else [f"about {age(left_s + 0.5)} left"]


def byte_words(done: int, total: int, per_s: float | None = None) -> str:
    speed = "" if not per_s else f" · {per_s / 1e9:.1f} GB/s" if per_s >= 1e9 else f" · {per_s / 1e6:.1f} MB/s"
    return f"{gigabytes(done)}/{gigabytes(total)} GB{speed}"


def token_words(verb: str, done: int, total: int, per_s: float | None = None) -> str:
    return f"{verb} {done:,}/{total:,} tok" + (f" · {per_s:,.0f} tok/s" if per_s else "")


def bar(done: float, total: float, words: str, left_s: float | None = None, width: int = BAR) -> str:
    return " · ".join([f"{gauge(done, total, width)} {words}", *left_words(left_s)])
