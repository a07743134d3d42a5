"""Preview of a model in the picker: its split, or its loading progress."""

from __future__ import annotations

from itertools import pairwise

from textual.content import Content

from core.events import Plan, Snapshot, Stage
from core.requests.plans import ModelChoice, PlanPreview, PlanRequest
from tui.state.bars import STEPS, TEXTURES, TINTS, gauge
from tui.state.disks import DiskRow, copies_of, disk_rows, names_of, transfer_words, transfers_of
from tui.state.format import BAD, DIM, GOOD, WARN, day, duration, fit, gigabytes, gigabytes_short, rate
from tui.state.load_options import option_words
from tui.state.plan_words import context_length, is_of_ranks, layer_range, part_of, survival, weights_text
from tui.state.progress_rate import left_words
from tui.state.state import UiState
from tui.widgets.banner import problem_content
from tui.widgets.loading_text import load_left_s, loading_lines
from tui.widgets.pane import Drawing, Pane
from tui.widgets.topology_text import all_reduce_lines, is_of_sight, note_content, prompt_words

DENSE_ROWS, FEW_ROWS = 16, 9

_NAME = 12
_WORDS = 16


class FitPreview(Pane):
    """The right or lower half of the picker."""

    HELP = """How the selected model would be divided. A bar shows the memory it needs on a Mac (weights and cache), \
out of that Mac's budget; the range is its layers.

The speed comes from past answers on these Macs (measured), or from their chips (estimated)."""

    def __init__(self) -> None:
        super().__init__(id="preview")
        self._choice: ModelChoice | None = None
        self._request: PlanRequest | None = None

    def point(self, choice: ModelChoice | None, request: PlanRequest | None) -> None:
        self._choice, self._request = choice, request
        self.show(self._state)

    def draw(self, state: UiState, width: int) -> Drawing:
        plan = state.snapshot.plan
        if state.snapshot.plan_status == "loading" and plan is not None:
            return Drawing("Loading", progress_content(state, width))
        rows = self.scrollable_content_region.height
        return Drawing("Fit preview", fit_content(self._choice, state, width, self._request, rows=rows))


def progress_content(state: UiState, width: int) -> Content:
    plan = state.snapshot.plan
    name = plan.model if plan is not None else ""
    done, total = (sum(getattr(s, f) for s in state.snapshot.stages) for f in ("done_bytes", "total_bytes"))
    share = f" · {100 * done // total} %" if total else ""
    left = left_words(load_left_s(state))
    head = Content.assemble((name, "bold"), share, *(f" · {words}" for words in left))
    foot = Content.styled("Esc: cancel · F2: leave, loading continues", DIM)
    return Content("\n").join([head, Content(""), *loading_lines(state, width), Content(""), foot])


def fit_content(
    choice: ModelChoice | None,
    state: UiState,
    width: int,
    request: PlanRequest | None = None,
    *,
    rows: int = DENSE_ROWS,
) -> Content:
    """The preview of a model in `width` cells. Few `rows`: no empty lines; very few: the deciding facts first."""
    if choice is None and not state.attached:
        return Content.styled("macluster's service isn't running on this Mac; the dashboard says why.", WARN)
    if choice is None:
        how = "Clear the filter (/) or show all (f). d downloads one from the Hugging Face hub."
        return Content.styled(f"No models match. {how}", DIM)
    loaded = state.snapshot.plan if choice.loaded else None
    split = loaded or choice.preview.plan or choice.preview.draft
    # the forecast is for the plan in the preview
    is_same = loaded is None or choice.preview.plan is None or choice.preview.plan.topology == loaded.topology
    facts = [Content.styled(choice.name, "bold"), *(_facts(choice, split, split or request) if choice.layers else [])]
    coming = _transfer_lines(choice, state, width)  # first, because it changes
    way = [] if choice.offer else _way_lines(loaded or choice.preview.plan, is_loaded=choice.loaded)
    if request and not choice.loaded and (chosen := option_words(request, choice)):
        way.append(Content(f"Chosen: {' · '.join(chosen)}"))
    stages = [_stage_line(split, s, width) for s in split.owners] if split is not None else []
    problem, step = _problem_lines(choice, state), _next_step(choice)
    forecast = _forecast_lines(choice.preview, choice.held_by) if is_same else []
    now = state.snapshot
    disks = [] if coming else [*_copy_lines(choice, now), *map_lines(choice, now, width)]
    notes = _note_lines(loaded or choice.preview.plan)
    if rows < FEW_ROWS:
        parts = [coming, problem, stages, step, way, facts, forecast, disks, notes]
    else:
        parts = [facts, coming, way, stages, forecast, disks, problem, step, notes]
    blank = [] if rows < DENSE_ROWS else [Content("")]
    lines = [line for part in parts if part for line in (*part, *blank)]
    return Content("\n").join(lines)


def _facts(choice: ModelChoice, split: Plan | None, how: Plan | PlanRequest | None) -> list[Content]:
    kv = sum(s.kv_bytes for s in split.stages) if split is not None else choice.preview.kv_bytes
    used = f"{context_length(how.context)} of " if how and how.context else ""
    context = f"context {used}{context_length(choice.context_max)}"
    size = f"{choice.layers} layers · {gigabytes(choice.total_bytes)} GB weights"
    room = [f"{gigabytes(kv)} GB"] if kv else []
    bits = [f"{how.kv_bits}-bit"] if how and how.kv_bits else []
    step = max((s.step_bytes for s in split.stages), default=0) if split is not None else 0
    computing = [f"{gigabytes(step)} GB to compute"] if step else []
    if split is not None and split.head.tokenizer_bytes:
        computing.append(f"{gigabytes(split.head.tokenizer_bytes)} GB tokenizer")
    return [
        Content(f"{size} · {weights}" if (weights := weights_text(choice)) else size),
        Content(" · ".join([context, *([" ".join(["cache", *room, *bits])] if room or bits else []), *computing])),
    ]


def _stage_line(plan: Plan, stage: Stage, width: int) -> Content:
    size = stage.needed_bytes
    name = min(16, max(9, width - 46))
    bar = max(8, min(24, width - name - 24))
    over = size > stage.budget_bytes
    return Content.assemble(
        fit(stage.peer, name - 1) + " ",
        (gauge(size, stage.budget_bytes, bar), BAD if over else "$primary"),
        fit(part_of(plan, stage), 8, right=True),
        fit(f"{gigabytes(size)}/{gigabytes_short(stage.budget_bytes)} GB", 15, right=True),
    )


def _forecast_lines(preview: PlanPreview, held_by: tuple[str, ...]) -> list[Content]:
    plan, forecast = preview.plan, preview.forecast
    if plan is None or forecast is None:
        return []
    source = "measured" if forecast.measured else "estimated"
    disks = " (weights are on every disk)" if all(stage.device_id in held_by for stage in plan.stages) else ""
    lines = [
        Content.assemble(f"Speed       about {rate(forecast.tokens_per_s)} tok/s", (f" ({source})", DIM)),
        Content(f"First token {prompt_words(forecast)}"),
        Content.assemble("Load time   ", f"about {duration(forecast.load_s)}", (disks, DIM)),
    ]
    return [*lines, *all_reduce_lines(forecast, "All-reduce  ")]


def _transfer_lines(choice: ModelChoice, state: UiState, width: int) -> list[Content]:
    now = state.snapshot
    if not (on_way := transfers_of(choice, now)):
        return []
    words = [transfer_words(each, now, width) for each in on_way]
    lines = [[Content.assemble(("◌ ", WARN), what), Content(f"  {far}")] for what, far in words]
    is_paused = all(each.state == "paused" for each in on_way)
    keys = f"x: stop · Space: {'resume' if is_paused else 'pause'} · b: limit the rate"
    shown = [line for pair in lines for line in pair]
    return [*shown, Content.styled(keys, DIM), *map_lines(choice, now, width)]


def _copy_lines(choice: ModelChoice, now: Snapshot) -> list[Content]:
    if offer := choice.offer:
        words = "↓ Not downloaded yet. Press d to download it: all of it, or only the part each Mac needs."
        licence = f"Licence: {offer.licence or 'unknown'} (catalogue of {day(offer.listed_on)})"
        return [Content.styled(words, WARN), Content.styled(licence, DIM)]
    if choice.preview.plan is not None and choice.preview.missing_on:
        names, size = names_of(now, choice.preview.missing_on), gigabytes_short(choice.preview.missing_bytes)
        return [Content.styled(f"↓ Loading first copies {size} GB to {names}; d copies the whole model.", WARN)]
    if choice.layers and not choice.path:
        holders = names_of(now, choice.held_by or [mac for mac, _ in choice.layers_on])
        return [Content.styled(f"○ On the disk of {holders}, not on this Mac: d copies it here.", WARN)]
    if choice.layers and (lacking := copies_of(choice, now)) and choice.preview.plan is not None:
        return [Content.styled(f"Not on the disk of {lacking.names} (d copies it).", DIM)]
    return []


def _problem_lines(choice: ModelChoice, state: UiState) -> list[Content]:
    lines = []
    problem, broken = choice.preview.problem, state.snapshot.plan_problem
    is_coming = not choice.layers and transfers_of(choice, state.snapshot)  # the missing part is being copied
    if problem is not None and not is_coming and (choice.path or choice.offer or not choice.layers):
        lines.append(problem_content(problem))
    if state.snapshot.plan_status == "broken" and broken is not None:
        lines.append(Content.assemble(("✗ the last load failed: ", BAD), broken.what))
    return lines


def _way_lines(plan: Plan | None, *, is_loaded: bool) -> list[Content]:
    if plan is None:
        return []
    macs = len(plan.stages)
    if is_of_ranks(plan):
        how, also = f"{plan.topology} on {macs} Macs", "" if is_loaded else ", P: automatic"
    else:
        how = f"On {plan.head.peer} only" if macs == 1 else f"{plan.topology}, {macs} hops per token"
        also = ", F4: change split" if is_loaded else ""
    keys = f"T: change topology{also}"
    return [Content.assemble(how, (f" ({keys})", DIM)), *(note_content(n) for n in plan.notes if is_of_sight(n))]


def _note_lines(plan: Plan | None) -> list[Content]:
    if plan is None:
        return []
    notes = [note_content(note) for note in plan.notes if not is_of_sight(note)]
    return [*notes, *([Content.styled(words, DIM)] if (words := survival(plan)) else [])]


def _next_step(choice: ModelChoice) -> list[Content]:
    if choice.loaded:
        return [Content.styled("● loaded · u: unload", GOOD)]
    if choice.preview.plan is not None and not choice.offer:
        return [Content.styled("Enter: load · e: edit the split · c: context length", DIM)]
    return []


def map_lines(choice: ModelChoice, now: Snapshot, width: int) -> list[Content]:
    """One line per Mac in `width` cells; none if every disk has all of the model, or no disk any."""
    rows = disk_rows(choice, now)
    bar = max(8, min(40, width - _NAME - _WORDS))
    lines = [_line(index, row, choice.layers, bar) for index, row in enumerate(rows)]
    return [Content.styled("Layers on disk", DIM), *lines] if lines else []


def _line(index: int, row: DiskRow, layers: int, bar: int) -> Content:
    there = layer_cells(row.ranges, layers, bar)
    texture, tint = TEXTURES[index % len(TEXTURES)], TINTS[index % len(TINTS)]
    cells = "".join(texture if cell else STEPS[0] for cell in there)
    held = sum(stop - start for start, stop in row.ranges)
    ranges = ", ".join(layer_range(*each) for each in row.ranges)
    words = "all" if held == layers else "none" if not held else ranges
    return Content.assemble(fit(row.name, _NAME - 1) + " ", (cells, tint), f" {words}", (row.coming, DIM))


def layer_cells(ranges: tuple[tuple[int, int], ...], layers: int, width: int) -> list[bool]:
    """For each of `width` cells, whether all its layers are in the half-open `ranges`."""
    there = {layer for start, stop in ranges for layer in range(start, stop)}
    starts = [cell * layers // width for cell in range(width + 1)]
    spans = (range(start, max(start + 1, stop)) for start, stop in pairwise(starts))
    return [there.issuperset(span) for span in spans]
