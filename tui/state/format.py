"""Numbers, marks and bars as text of a known width. Pure: no widget and no clock here."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from datetime import date
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from core.events import Level, Peer, Plan, Stage, StageStatus
from core.requests.checks import FindingState, PathFigures
from core.requests.plans import ModelChoice
from core.settings import GB

TEXTURES = "█▓▒░"
STEPS = "▁▂▃▄▅▆▇█"
TINTS = ("$stage-1", "$stage-2", "$stage-3", "$stage-4")

_LEAST_TIME_S = 1e-5

MOST = 10**18
LAST_DAY = 253_370_764_800  # the first day of 9999, in seconds since the epoch

GOOD, WARN, BAD, DIM = "$text-success", "$text-warning", "$text-error", "$text-muted"


class Mark(NamedTuple):
    """A state as glyph, word and colour, so that no single one is needed."""

    glyph: str
    word: str
    style: str


_TRUST: dict[Level, Mark] = {
    "blocked": Mark("✗", "blocked", BAD),
    "unpaired": Mark("○", "unpaired", WARN),
    "seen": Mark("◇", "seen", WARN),
    "paired": Mark("◆", "paired", GOOD),
}

_STAGE: dict[StageStatus, Mark] = {
    "waiting": Mark("○", "waiting", DIM),
    "fetching": Mark("↓", "fetching", WARN),
    "comparing": Mark("≈", "comparing", WARN),
    "loading": Mark("◌", "loading", WARN),
    "linking": Mark("◍", "linking", WARN),
    "ready": Mark("●", "ready", GOOD),
    "broken": Mark("✗", "broken", BAD),
    "lost": Mark("✗", "offline", BAD),
}


_FINDING: dict[FindingState, Mark] = {
    "ok": Mark("✓", "ok", GOOD),
    "warn": Mark("▲", "warning", WARN),
    "bad": Mark("✗", "problem", BAD),
    "unknown": Mark("–", "unknown", DIM),
}


def finding_mark(state: FindingState) -> Mark:
    return _FINDING[state]


def trust_mark(level: Level) -> Mark:
    return _TRUST[level]


def peer_trust(peer: Peer) -> Mark:
    """How far a Mac is trusted; one that is offline was paired, although its level can't be checked now."""
    return _TRUST["paired" if peer.state == "lost" and peer.trust in ("unpaired", "seen") else peer.trust]


def stage_mark(status: StageStatus) -> Mark:
    return _STAGE[status]


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


def weights_text(choice: ModelChoice) -> str:
    """Quantisation, and whether a model with a part for images is used without it."""
    return choice.quantization + (", text only" if choice.offer and choice.offer.text_only else "")


def context_length(tokens: int) -> str:
    tokens = round(bounded(tokens))
    return f"{tokens // 1024}k" if tokens and tokens % 1024 == 0 else str(tokens)


def layer_range(start: int, stop: int) -> str:
    """The half-open range [start, stop) for people, both ends included."""
    start, stop = round(bounded(start)), round(bounded(stop))
    if stop <= start:
        return "–"
    return str(start) if stop == start + 1 else f"{start}–{stop - 1}"


def is_of_ranks(plan: Plan) -> bool:
    return plan.parallelism is not None and plan.parallelism.strategy == "tp"


def cable_mark(plan: Plan | None) -> Mark | None:
    if plan is None or plan.parallelism is None or not is_of_ranks(plan) or plan.parallelism.group == "sealed":
        return None
    return Mark("▲", "not encrypted on the cable", WARN)


def part_of(plan: Plan, stage: Stage) -> str:
    return f"rank {plan.stages.index(stage)}" if is_of_ranks(plan) else layer_range(stage.start, stage.stop)


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


def gauge(part: float, whole: float, width: int) -> str:
    """A bar of `width` cells, filled by part/whole; anything above zero fills at least one cell."""
    part, whole = bounded(part), bounded(whole)
    if whole <= 0:
        return STEPS[0] * width
    filled = max(0, min(width, round(bounded(width * part / whole))))
    if part > 0:
        filled = max(1, filled)
    return "▇" * filled + STEPS[0] * (width - filled)


def shares(weights: Sequence[int], width: int) -> list[int]:
    """`width` cells divided by `weights` (largest remainder); every weight gets at least one cell."""
    weights = [max(0, round(bounded(weight))) for weight in weights]
    total = sum(weights)
    if not weights or total <= 0 or width < len(weights):
        return [0] * len(weights)
    exact = [w * (width - len(weights)) / total for w in weights]
    cells = [int(e) for e in exact]
    by_remainder = sorted(range(len(weights)), key=lambda i: cells[i] - exact[i])
    for i in by_remainder[: width - len(weights) - sum(cells)]:
        cells[i] += 1
    return [c + 1 for c in cells]


def scale_top(longest: float) -> float:
    """The end of a time scale: the first of 1, 2, 5, 10, ... ms that holds `longest` seconds."""
    top = 0.001
    for factor in (1, 2, 5) * 5:
        if longest <= top * factor:
            return top * factor
        if factor == 5:
            top *= 10
    return top


def time_spark(samples: Iterable[float | None], top: float) -> str:
    """Times in seconds on the logarithmic scale of `time_scale`: 0.04 ms is visible next to 1.4 ms and 100 ms."""
    return spark(samples, top, _LEAST_TIME_S)


def time_scale(top: float) -> tuple[str, str]:
    """The labels of a time scale that ends at `top` seconds."""
    return f"{_LEAST_TIME_S * 1e3:g}", f"{top * 1e3:.0f} ms" if top < 1 else f"{top:.0f} s"


def columns(
    samples: Iterable[tuple[float, float]], now: float, window_s: float, width: int
) -> tuple[float | None, ...]:
    """Samples (at, value) as the mean of each of `width` slots; None where nothing was measured.

    Slots begin at whole multiples of their length, so a bar keeps its height while it moves to the left.
    """
    slot_s = window_s / width
    last = int(bounded(now) // slot_s)
    slots: list[list[float]] = [[] for _ in range(width)]
    for at, value in samples:
        index = width - 1 - (last - int(bounded(at) // slot_s))
        if 0 <= index < width:
            slots[index].append(bounded(value))
    return tuple(sum(s) / len(s) if s else None for s in slots)


def spark(values: Iterable[float | None], top: float, floor: float = 0.0) -> str:
    """One cell per value on the scale 0 to `top`, logarithmic if `floor` is above 0; a space for None."""
    last, top = len(STEPS) - 1, bounded(top)
    if top <= floor:
        return "".join(" " if v is None else STEPS[0] for v in values)

    def part(value: float) -> float:
        return value / top if floor <= 0 else math.log(max(value, floor) / floor) / math.log(top / floor)

    steps = [None if v is None else round(bounded(last * part(bounded(v)))) for v in values]
    return "".join(" " if step is None else STEPS[max(0, min(last, step))] for step in steps)
