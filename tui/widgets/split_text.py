"""Text of the split editor. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from rich.cells import cell_len
from textual.content import Content

from core.events import Plan
from core.requests.plans import Forecast
from core.settings import GB
from tui.state.bars import gauge
from tui.state.boundaries import Boundaries
from tui.state.format import BAD, DIM, GOOD, WARN, age, duration, fit, gigabytes, plural
from tui.state.split_effects import Effect, OnDisk, Share
from tui.widgets.layer_bar import BOUNDARY, layer_bar, marked, part_starts
from tui.widgets.text_view import title_line

_LAYERS, _SIZES, _FREE, _TIME = 8, 18, 21, 9
_ON_DISK: Final = 24
_MOVING: Final = "moving boundary "
# round trips vary: a smaller relative difference means nothing
_NOISE: Final = 0.01
# circled numbers end here
_CIRCLED: Final = 20


class Loaded(NamedTuple):
    """The loaded plan."""

    cuts: tuple[int, ...] | None  # its boundaries, None if it is another model or on other Macs
    model: str  # "" for none
    answers: int  # running answers


def title_content(plan: Plan | None, state: str, width: int) -> Content:
    if plan is None:
        return title_line("Edit split", "", width)
    right = f"{plural(plan.layers, 'layer')} · {state}"
    return title_line("Edit split", right, width, more=f" · {plan.model}", style=DIM)


def bar_content(now: Boundaries, names: Sequence[str], width: int) -> Content:
    """The bar with the first layer of each part above and its Mac below, and the boundary that moves."""
    layers = [len(part) for part in now.parts]
    starts = part_starts(layers, width)
    bar = layer_bar(layers, width)
    if now.cuts:
        bar = marked(bar, starts[now.chosen + 1] - 1, BOUNDARY, "bold reverse $accent")
    last = str(now.layers - 1) if len(now.parts[-1]) > 1 else ""
    above = _placed([(at, str(part.start)) for at, part in zip(starts, now.parts, strict=False)], width - len(last) - 1)
    labels = [
        (at + 1, _label(name, len(part), starts[i + 1] - at - 2))
        for i, (at, name, part) in enumerate(zip(starts, names, now.parts, strict=False))
    ]
    lines = [
        Content.styled(fit(above, width - len(last)) + last, DIM),
        bar,
        Content(_placed(labels, width)),
        Content(""),
        moving_content(now, names, width),
        Content.styled(now.remark, WARN) if now.remark else Content(""),
    ]
    return Content("\n").join(lines)


def moving_content(now: Boundaries, names: Sequence[str], width: int) -> Content:
    if not now.cuts:
        return Content.styled(f"{names[0]} holds the whole model, so there is no boundary to move.", DIM)
    number = chr(ord("①") + now.chosen) if now.chosen < _CIRCLED else f"({now.chosen + 1})"
    of = f" of {len(now.cuts)}" if len(now.cuts) > 1 else ""
    room = max(4, (width - len(_MOVING) - 12) // 2)
    between_them = " | ".join(fit(name, min(room, cell_len(name))) for name in names[now.chosen : now.chosen + 2])
    return Content.assemble(_MOVING, (number, "bold $accent"), of, "  ", (between_them, "bold"))


def effect_content(now: Effect, was: float | None, width: int) -> Content:
    """One line per Mac, and the time of one token; `was` is the rate at the start, in tokens per second."""
    slowest_s = max((s.token_s or 0.0 for s in now.shares), default=0.0)
    lines = [_share_line(s, slowest_s, width) for s in now.shares]
    return Content("\n").join([_head(width), *lines, Content(""), _token_line(now, was)])


def disks_content(now: Effect, width: int) -> Content:
    """The layers each Mac has on disk, and what it must download; one line if nothing is missing, none if unknown."""
    reported = [(share, share.disk) for share in now.shares if share.disk]
    if not reported:
        return Content("")
    if not any(disk.missing_bytes for _, disk in reported):
        return Content.styled("✓ Every Mac already has its layers.", GOOD)
    name, _ = _columns(width)
    head = Content.styled(fit(fit("Mac", name) + fit("on disk", _ON_DISK) + "to download", width), DIM)
    return Content("\n").join([head, *(_disk_line(share, disk, name).truncate(width) for share, disk in reported)])


def _disk_line(share: Share, disk: OnDisk, name: int) -> Content:
    who = fit(share.peer, name - 1) + " "
    if not disk.missing_bytes:
        return Content.assemble(who, (f"✓ all {plural(share.layers, 'layer')}", GOOD))
    there = f"↓ {disk.layers or 'none'} of {plural(share.layers, 'layer')}"
    about = "" if disk.fetch_s is None else f", about {age(disk.fetch_s + 0.5)}"
    return Content.assemble(who, (fit(there, _ON_DISK), WARN), f"{gigabytes(disk.missing_bytes)} GB{about}")


def forecast_content(forecast: Forecast) -> Content:
    guess = "Partly estimated from the chips; answers make it exact."
    lines = [] if forecast.measured else [Content.styled(guess, DIM)]
    if forecast.advice:
        lines.append(Content.styled(f"▲ {forecast.advice}", WARN))
    return Content("\n").join(lines)


def applying_content(plan: Plan, cuts: tuple[int, ...], loaded: Loaded) -> Content:
    if cuts == loaded.cuts:
        return Content.styled("● Currently loaded.", GOOD)
    macs = plural(len(plan.stages), "Mac")
    if not loaded.model:
        return Content.styled(f"Enter loads the model with this split on {macs}.", DIM)
    return Content.styled(f"▲ Applying {applying_words(plan, cuts, loaded)}.", WARN)


def applying_words(plan: Plan, cuts: tuple[int, ...], loaded: Loaded) -> str:
    macs = plural(len(plan.stages), "Mac")
    if loaded.cuts is None:
        what = f"unloads {loaded.model} and loads this model on {macs}"
    else:
        what = f"unloads the model and loads it again on {macs}{_changes(plan, loaded.cuts, cuts)}"
    if not loaded.answers:
        return what
    return f"{what}, and stops {'the running answer' if loaded.answers == 1 else f'{loaded.answers} running answers'}"


def _changes(plan: Plan, before: Sequence[int], after: Sequence[int]) -> str:
    edges = [(0, *cuts, plan.layers) for cuts in (before, after)]
    counts = [[stop - start for start, stop in pairwise(edge)] for edge in edges]
    more = [(owner.peer, new - old) for owner, old, new in zip(plan.owners, *counts, strict=True) if new != old]
    more.sort(key=lambda each: -each[1])
    words = [f"{name} {'+' if n > 0 else '−'}{abs(n)}" for name, n in more]
    return f" ({', '.join(words)} layers)" if words else ""


def _head(width: int) -> Content:
    name, bar = _columns(width)
    text = fit("Mac", name) + fit("layers", _LAYERS - 2, right=True) + "  " + fit("weights + cache", _SIZES)
    return Content.styled(fit(text + fit("free after", _FREE) + ("est. stage time" if bar >= 0 else ""), width), DIM)


def _columns(width: int) -> tuple[int, int]:
    """Cells of the name, and of the bar after the time; negative if there is no room for the time either."""
    left = width - _LAYERS - _SIZES - _FREE
    name = max(8, min(16, left - _TIME - 6))
    return name, min(24, left - name - _TIME)


def _share_line(share: Share, slowest_s: float, width: int) -> Content:
    name, bar = _columns(width)
    sizes = f"{gigabytes(share.weight_bytes)} + {gigabytes(share.kv_bytes)} GB"
    parts = [
        Content(fit(share.peer, name - 1) + " " + fit(str(share.layers), _LAYERS - 2, right=True) + "  "),
        Content(fit(sizes, _SIZES)),
        _free(share),
    ]
    if bar >= 0:
        time = "–" if share.token_s is None else duration(share.token_s)
        parts.append(Content(fit(time, _TIME - 1, right=True) + " "))
        if bar and share.token_s is not None:
            parts.append(Content.styled(gauge(share.token_s, slowest_s, bar), "$primary"))
    return Content("").join(parts).truncate(width)


def _free(share: Share) -> Content:
    if share.free_bytes >= 0:
        return Content.styled(fit(f"✓ {gigabytes(share.free_bytes)} GB free", _FREE), GOOD)
    lacks = max(0.1, -share.free_bytes / GB)
    return Content.styled(fit(f"✗ needs {lacks:.1f} GB more", _FREE), BAD)


def _token_line(now: Effect, was: float | None) -> Content:
    rate = now.tokens_per_s
    if rate is None or now.compute_s is None or now.hops_s is None:
        return Content.styled("No prediction yet.", DIM)
    sums = f"{duration(now.compute_s)} compute + {duration(now.hops_s)} hops"
    before = f" (was {was:.1f})" if was is not None and abs(rate - was) > _NOISE * was else ""
    equals = "→" if now.is_exact else "≈"
    return Content.assemble(f"One token = {sums} {equals} ", (f"{rate:.1f} tok/s", "bold"), (before, DIM))


def _label(name: str, layers: int, width: int) -> str:
    words = plural(layers, "layer")
    for text in (f"{name} · {words}", f"{name} · {layers}", name):
        if cell_len(text) <= width:
            return text
    return fit(name, max(0, width)).rstrip()


def _placed(texts: Sequence[tuple[int, str]], width: int) -> str:
    """Texts at their cells on one line; texts that would overlap or not fit are left out."""
    line = ""
    for at, text in texts:
        if text and (at > cell_len(line) or not line) and at + cell_len(text) <= width:
            line = fit(line, at) + text
    return line
