"""Numbers, marks and bars as text of a known width. Pure: no widget and no clock here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from core.events import Level, Peer, StageStatus
from core.requests.checks import FindingState, PathFigures
from core.settings import GB

MOST = 10**18
LAST_DAY = 253_370_764_800  # the first day of 9999, in seconds since the epoch

GOOD, WARN, BAD, DIM = "$text-success", "$text-warning", "$text-error", "$text-muted"


class Mark(NamedTuple):
    """A state as glyph, word and colour, so that no single one is needed."""

    glyph: str
    word: str
    style: str


TRUST_MARKS: dict[Level, Mark] = {
    "blocked": Mark("✗", "blocked", BAD),
    "unpaired": Mark("○", "unpaired", WARN),
    "seen": Mark("◇", "seen", WARN),
    "paired": Mark("◆", "paired", GOOD),
}

STAGE_MARKS: dict[StageStatus, Mark] = {
    "waiting": Mark("○", "waiting", DIM),
    "fetching": Mark("↓", "fetching", WARN),
    "comparing": Mark("≈", "comparing", WARN),
    "loading": Mark("◌", "loading", WARN),
    "linking": Mark("◍", "linking", WARN),
    "ready": Mark("●", "ready", GOOD),
    "broken": Mark("✗", "broken", BAD),
    "lost": Mark("✗", "offline", BAD),
}


FINDING_MARKS: dict[FindingState, Mark] = {
    "ok": Mark("✓", "ok", GOOD),
    "warn": Mark("▲", "warning", WARN),
    "bad": Mark("✗", "problem", BAD),
    "unknown": Mark("–", "unknown", DIM),
}


def peer_trust(peer: Peer) -> Mark:
    """How far a Mac is trusted; one that is offline was paired, although its level can't be checked now."""
    return TRUST_MARKS["paired" if peer.state == "lost" and peer.trust in ("unpaired", "seen") else peer.trust]


def peer_mark(peer: Peer) -> Mark:
    """The state of a Mac: what keeps it out of a split comes before the state of its link."""
    if peer.trust == "blocked":
        return Mark("✗", "blocked", BAD)
    if peer.state == "lost":
        return Mark("✗", "offline", BAD)
    if peer.trust in ("unpaired", "seen"):
        return Mark("○", "not paired", WARN)
    if peer.state == "needs an update":
        return Mark("▲", peer.state, WARN)
    if peer.state == "suspect":
        return Mark("◐", "slow", WARN)
    if peer.state == "seen" and not peer.is_self:
        return Mark("◌", "connecting", WARN)
    return Mark("●", "ready", GOOD)


def is_ready(peer: Peer) -> bool:
    return peer_mark(peer).word == "ready"


def fit(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` cells: cut with "…" or padded, on the left if `right`. Wide characters count two."""
    if width <= 0:
        return ""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1).rstrip() + "…"
    pad = " " * (width - cell_len(text))
    return pad + text if right else text + pad


def between(left: str, right: str, width: int) -> str:
    """`left` and `right` at the two ends of `width` cells; `left` is cut if both do not fit."""
    return fit(left, width - cell_len(right)) + right


def fingerprint(sha256: str) -> str:
    upper = sha256.upper()
    return " ".join(upper[i : i + 4] for i in range(0, len(upper), 4))


def fingerprint_short(sha256: str) -> str:
    groups = fingerprint(sha256).split()
    return " ".join([*groups[:3], "…", groups[-1]]) if groups else "–"


def fingerprint_rows(sha256: str, groups: int = 8) -> str:
    """All of a fingerprint, `groups` a row, below each other after a label of 13 cells."""
    every = fingerprint(sha256).split()
    return ("\n" + " " * 13).join(" ".join(every[i : i + groups]) for i in range(0, len(every), groups))


def bounded(number: float) -> float:
    """Limit a number to what can be computed with and shown, so that no figure breaks a screen."""
    return max(-MOST, min(MOST, number))


def gigabytes(count: int) -> str:
    """Bytes as GB: three decimals below a tenth, one below 100: "0.003", "4.2", "118"."""
    value = bounded(count) / GB
    if 0 < value < 0.0995:
        return f"{value:.3f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def gigabytes_short(count: int) -> str:
    """Bytes as whole GB, one decimal below 10, three below a tenth."""
    value = bounded(count) / GB
    if 0 < value < 0.0995:
        return gigabytes(count)
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:.0f}"


def duration(seconds: float) -> str:
    """A time with its unit: "0.40 ms", "6.2 ms", "1.9 s", "2 min 5 s"; never "1000 ms"."""
    seconds = bounded(seconds)
    if seconds < 0.000995:
        return f"{seconds * 1e3:.2f} ms"
    if seconds < 0.09995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def age(seconds: float) -> str:
    """How long ago, in its largest unit: "40 s", "3 min", "5 h", "12 days"."""
    seconds = bounded(seconds)
    for size, unit in ((86_400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            whole = int(seconds // size)
            return plural(whole, unit) if unit == "day" else f"{whole} {unit}"
    return f"{int(seconds)} s"


def count(number: int) -> str:
    """A count in at most four characters below a million: "812", "3.1k", "32k"."""
    number = round(bounded(number))
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 9950 else f"{number / 1000:.0f}k"


def clock(at: float, *, seconds: bool = False) -> str:
    return _local("%H:%M:%S" if seconds else "%H:%M", at)


def moment(at: float) -> str:
    return _local("%Y-%m-%d %H:%M", at)


def day(iso: str) -> str:
    try:
        return f"{date.fromisoformat(iso):%-d %b %Y}"
    except ValueError:
        return iso


def _local(form: str, at: float) -> str:
    return time.strftime(form, time.localtime(max(0, min(LAST_DAY, at))))


def plural(number: int, noun: str) -> str:
    return f"{round(bounded(number))} {noun}{'' if number == 1 else 's'}"


def rate(per_s: float) -> str:
    return f"{per_s:.1f}" if per_s < 10 else f"{per_s:.0f}"


def path_words(paths: Sequence[PathFigures]) -> str:
    """ "Thunderbolt 0.31 ms, 2400 Mbit/s; Wi-Fi 4.10 ms, 310 Mbit/s"; "" where no network is known."""
    return "; ".join(map(_path_words, paths))


def _path_words(path: PathFigures) -> str:
    per_s = f", {path.bytes_per_s * 8 / 1e6:.0f} Mbit/s" if path.bytes_per_s else ""
    return f"{path.kind or 'another network'} {1e3 * path.rtt_s:.2f} ms{per_s}"
