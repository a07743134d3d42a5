"""The line above the zoomed chat."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from tui.state.format import DIM, fit, plural
from tui.state.state import UiState
from tui.widgets.chat_log import chat_words
from tui.widgets.prompt import context_words
from tui.widgets.status_line import readiness_words
from tui.widgets.text_view import StateView

_LEAST = 12  # cells for " Chat" and the separators


class ChatTitle(StateView):
    """Model, Macs, options, context and readiness."""

    def content_of(self, state: UiState, width: int) -> Content:
        return title_content(state, width)


def title_content(state: UiState, width: int) -> Content:
    plan, words = state.snapshot.plan, chat_words(state)
    if plan is not None:
        words.insert(1, plural(len(plan.stages), "Mac"))
    now, style = readiness_words(state)
    context = fit(context_words(state), width - cell_len(now) - _LEAST).rstrip()
    right = Content.assemble((f" {context} · " if context else " ", DIM), (f"{now} ", style))
    left = Content(fit(" " + " · ".join(["Chat", *words]), width - right.cell_length)).stylize("bold", 0, 5)
    return left + right
