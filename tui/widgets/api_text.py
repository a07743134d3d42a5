"""Text of the API screen. Pure."""

from __future__ import annotations

from typing import Final

from textual.content import Content

from core.events import BatchRow, Snapshot
from tui.state.format import BAD, DIM, GOOD, WARN, fingerprint_short, fit, plural
from tui.state.snippets import KEY, SNIPPETS, text_of
from tui.widgets.text_view import title_line


def requests_of(now: Snapshot) -> tuple[BatchRow, ...]:
    return tuple(row for row in now.batch.rows if row.client)


def title_content(now: Snapshot, width: int) -> Content:
    asking = sum(client.asking for client in now.clients)
    asked = plural(asking, "request") if asking else "no requests"
    if waits := _waiting(now, asking):
        asked += f", {waits} queued"
    state, style = (f"● on · {asked}", GOOD) if now.api else ("○ off", DIM)
    return title_line("Other programs", state, width, style=style)


def _waiting(now: Snapshot, asking: int) -> int:
    running = now.batch.running
    if now.plan is None or not running or not (now.batch.queue or len(running) >= now.plan.rows):
        return 0
    return max(0, asking - sum(bool(row.client) for row in running))


def address_content(now: Snapshot, *, attached: bool) -> Content:
    if not attached:
        return Content.styled("✗ macluster's service doesn't answer; retrying every second.", BAD)
    api = now.api
    if api is None:
        words = "Press o to let programs on this Mac use the model (other machines can't)."
        return Content.assemble(("○ off  ", DIM), words, "\n", _answers(now))
    lines = [Content.assemble(("● on   ", GOOD), api.url, "  ", _answers(now))]
    if api.fingerprint:
        lines.append(Content.assemble(("certificate SHA-256  ", DIM), fingerprint_short(api.fingerprint)))
    if api.warning:
        lines.append(Content.styled(f"▲ {api.warning}", WARN))
    return Content("\n").join(lines)


NO_KEYS: Final = Content("No keys yet. n makes one.")
NO_REQUESTS: Final = Content("No requests right now. Running requests appear here; x stops one.")


def paste_content(client: str, now: Snapshot, width: int) -> Content:
    snippet = SNIPPETS[client]
    lines = [Content.styled(snippet.where, DIM), Content(text_of(client, now)), Content("")]
    note = f"{KEY} stands for a key. n makes one and shows it once."
    return Content("\n").join([*lines, Content.styled(fit(note, max(width, 1)).rstrip(), DIM)])


def paste_title(client: str) -> str:
    names = list(SNIPPETS)
    return f"‹ {SNIPPETS[client].title} › {names.index(client) + 1} of {len(names)}"


def _answers(now: Snapshot) -> Content:
    if now.plan is None and now.led_elsewhere:
        return Content.styled(f"Serving {now.led_elsewhere} (loaded by another Mac).", DIM)
    if now.plan is None:
        return Content.styled("No model is loaded. Ctrl+O chooses one.", WARN)
    if now.plan_status != "ready":
        return Content.styled(f"{now.plan.model} isn't ready.", WARN)
    return Content.styled(f"Serving {now.plan.model.rpartition('/')[2]}.", DIM)
