"""How far work is that takes a while, how fast it goes, and what is left of it; the same words for all of it. Pure."""

from __future__ import annotations

from core.events import Value
from tui.state.format import age, gauge, gigabytes

BAR = 16


class Pace(Value, frozen=True, kw_only=True):
    """`done` of `total` at `at`, and `first` at `since`; times are seconds since the epoch."""

    done: int
    total: int
    at: float
    first: int
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
    """Note progress; measures again if the work restarted."""
    if before is None or done < before.done or total != before.total:
        return Pace(done=done, total=total, at=now, first=done, since=now)
    return Pace(done=done, total=total, at=now, first=before.first, since=before.since)


def left_words(left_s: float | None) -> list[str]:
    """ "about 17 s left"; nothing if unknown."""
    return [] if left_s is None else [f"about {age(left_s + 0.5)} left"]


def byte_words(done: int, total: int, per_s: float | None = None) -> str:
    """ "1.2/4.0 GB · 43.0 MB/s"."""
    speed = "" if not per_s else f" · {per_s / 1e9:.1f} GB/s" if per_s >= 1e9 else f" · {per_s / 1e6:.1f} MB/s"
    return f"{gigabytes(done)}/{gigabytes(total)} GB{speed}"


def token_words(verb: str, done: int, total: int, per_s: float | None = None) -> str:
    """ "read 1,024/4,096 tok · 850 tok/s", the verb being "read"."""
    return f"{verb} {done:,}/{total:,} tok" + (f" · {per_s:,.0f} tok/s" if per_s else "")


def bar(done: float, total: float, words: str, left_s: float | None = None, width: int = BAR) -> str:
    """ "▇▇▇▇▁▁▁▁ read 1,024/4,096 tok · 850 tok/s · about 4 s left"."""
    return " · ".join([f"{gauge(done, total, width)} {words}", *left_words(left_s)])
