"""One message of the conversation; only the last chunk of a growing answer is redrawn."""

from __future__ import annotations

from contextlib import nullcontext

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from core.events import Recovery
from core.settings import PREFILL_CHUNK
from core.text import Clean
from tui.state.format import DIM, GOOD, WARN, age, clock, duration
from tui.state.progress_rate import bar, token_words
from tui.state.recovery import STOPS, since
from tui.state.turns import Remark, Turn
from tui.widgets.markdown import render
from tui.widgets.markdown_chunks import NOTHING, Chunk, grown, open_fence
from tui.widgets.text_view import TextView

FIGURES_S = 0.25
_BAR = 6  # fits next to the panes


class MessageView:
    """One message: its turn and its widgets.

    The widgets lie directly in the scroller: every level of nesting would be measured again for each token.
    """

    def __init__(self, turn: Turn, *widgets: Widget) -> None:
        self.turn = turn
        self.widgets = list(widgets)
        self.finished = True
        self._marked = False

    def mark(self, on: bool) -> None:
        self._marked = on
        for widget in self.widgets:
            widget.set_class(on, "marked")

    async def advance(self, turn: Turn, now: float, recovery: Recovery | None) -> None:
        """Show what is new in `turn`; a question is finished at once."""

    def zoom(self, on: bool) -> None:
        """Zoomed, an answer shows its figures in its head instead of below."""


class QuestionView(MessageView):
    """A question, as it was typed."""

    def __init__(self, turn: Turn, place: str = "") -> None:
        head = Content.assemble(("you", "bold $primary"), (f" · {clock(turn.at)}", DIM), *_place(place))
        super().__init__(turn, Static(Content("\n").join([head, Content(turn.text)]), markup=False, classes="message"))


class ChunkView(TextView):
    """A chunk of an answer, drawn for its width. An empty one takes no room."""

    def __init__(self, chunk: Chunk) -> None:
        super().__init__(classes="chunk")
        self.chunk = chunk
        self._drawn_for = 0
        self.show(chunk)

    def show(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.display = bool(chunk.text.strip())
        self.set_class(not chunk.gap, "goes-on")
        if self._drawn_for:
            self._draw()

    def on_mount(self) -> None:
        if isinstance(self.parent, Widget):
            self._draw_for(self.parent.content_size.width)

    def on_resize(self) -> None:
        self._draw_for(self.size.width)

    def _draw_for(self, width: int) -> None:
        if width > 0 and width != self._drawn_for:
            self._drawn_for = width
            self._draw()

    def _draw(self) -> None:
        self.draw(render(self.chunk, self._drawn_for))


class AnswerView(MessageView):
    """An answer: head, chunks with remarks between them (the last chunk grows), and a line of figures."""

    def __init__(self, turn: Turn, place: str = "") -> None:
        self._place = place
        self._head = TextView(classes="head")
        self._head.draw(head_content(turn, None, place=place))
        self._foot = TextView(classes="message")
        self._drawn_at = 0.0
        self._zoomed = False
        # a finished answer, as in a reopened conversation, is drawn at once
        is_whole = turn.done and not turn.remarks
        body = [ChunkView(chunk) for chunk in grown(NOTHING, turn.text if is_whole else "")]
        self._last = body[-1]
        super().__init__(turn, self._head, *body, self._foot)
        self._taken = len(turn.text) if is_whole else 0
        self._remarks = 0
        self.finished = is_whole
        if is_whole:
            self._draw_figures(turn.at, None)

    async def advance(self, turn: Turn, now: float, recovery: Recovery | None) -> None:
        """Show what is new in `turn`, and the time; called 30 times a second."""
        self.turn = turn
        for remark in turn.remarks[self._remarks :]:
            await self._grow(turn.text[self._taken : remark.at])
            await self._remark(remark)
        await self._grow(turn.text[self._taken :])
        self.finished = turn.done
        self._draw_figures(now, recovery)

    def zoom(self, on: bool) -> None:
        if on == self._zoomed:
            return
        self._zoomed, self._drawn_at = on, 0.0
        if self.finished:
            self._draw_figures(self.turn.at, None)

    async def _grow(self, more: str) -> None:
        if not more:
            return
        self._taken += len(more)
        first, *others = grown(self._last.chunk, more)
        with self._foot.app.batch_update() if others else nullcontext():  # else the end would jump up and down
            self._last.show(first)
            for chunk in others:
                await self._add(ChunkView(chunk))

    async def _remark(self, remark: Remark) -> None:
        self._remarks += 1
        fence = open_fence(self._last.chunk.text)
        await self._add(Static(Content.styled(f"─── {remark.words} ───", DIM), markup=False, classes="message"))
        await self._add(ChunkView(Chunk(Clean(fence))))

    async def _add(self, widget: ChunkView | Static) -> None:
        widget.set_class(self._marked, "marked")
        self.widgets.insert(-1, widget)
        if isinstance(self._foot.parent, Widget):
            await self._foot.parent.mount(widget, before=self._foot)
        if isinstance(widget, ChunkView):
            self._last = widget

    def _draw_figures(self, now: float, recovery: Recovery | None) -> None:
        # figures need no 30 frames a second; a clock that was set back must not stop them
        if 0 <= now - self._drawn_at < FIGURES_S and not self.finished:
            return
        self._drawn_at = now
        self._head.draw(head_content(self.turn, recovery, zoomed=self._zoomed, place=self._place))
        foot = foot_content(self.turn, now, recovery, zoomed=self._zoomed)
        self._foot.display = bool(foot.plain)
        self._foot.draw(foot)


def head_content(turn: Turn, recovery: Recovery | None, *, zoomed: bool = False, place: str = "") -> Content:
    paused = not turn.done and recovery is not None and recovery.state in STOPS
    where = f" · paused at token {turn.tokens}" if paused else ""
    words = [clock(turn.at), *(_head_figures(turn) if zoomed and not paused else ())]
    said = "".join(f" · {word}" for word in words)
    return Content.assemble(("model", "bold $accent"), (said, DIM), *_place(place), (where, WARN))


def _place(place: str) -> list[tuple[str, str]]:
    return [(" · ", DIM), (place, "$accent")] if place else []


def _head_figures(turn: Turn) -> list[str]:
    if turn.done:
        return figures(turn) if turn.tokens else []
    if not turn.tokens:
        return [_waiting(turn)]
    return [f"writing {turn.rate:.1f} tok/s" if turn.rate is not None else "writing"]


def _waiting(turn: Turn) -> str:
    if (now := turn.reading) is not None and now.done < now.total:
        return bar(now.done, now.total, token_words("read", now.done, now.total, now.per_s), now.left_s, _BAR)
    if turn.prompt_tokens > PREFILL_CHUNK:  # nothing was read yet, which may take a while
        return bar(0, turn.prompt_tokens, token_words("read", 0, turn.prompt_tokens), width=_BAR)
    return f"reading {turn.prompt_tokens:,} tokens" if turn.prompt_tokens else "waiting"


def foot_content(turn: Turn, now: float, recovery: Recovery | None = None, *, zoomed: bool = False) -> Content:
    """The figures under an answer, and why it stopped. Zoomed, the head has the figures."""
    if not turn.done and recovery is not None:
        if recovery.state in STOPS:
            return Content.styled(f"─── paused · {since(recovery, now)} ───", WARN)
        # continues however long a part takes
        if turn.reading is not None or (recovery.state == "stuck" and turn.prompt_tokens and not turn.tokens):
            return Content.styled(f"{_waiting(turn)} · Esc: stop", DIM)
        return Content.styled(f"{recovery.text} · {since(recovery, now)} · Esc: stop", WARN)
    if not turn.done and zoomed:
        return Content("")
    if not turn.done:
        words = figures(turn) if turn.tokens else [_waiting(turn)]
        is_timed = turn.reading is not None and turn.reading.left_s is not None
        words += [age(now - turn.at) if now - turn.at >= 1 and not is_timed else "", "Esc: stop"]
        return Content.styled(" · ".join(w for w in words if w), DIM)
    lines = [Content.styled(f"─── {turn.why} ───", DIM)] if turn.why else []
    words = figures(turn) if turn.tokens and not zoomed else []
    if words and turn.last_at is not None and turn.last_at - turn.at >= 1:
        words.append(duration(turn.last_at - turn.at))
    if words and turn.ttft_s is not None:
        words.append(f"first token {duration(turn.ttft_s)}")
    last = [Content.styled(" · ".join(words), DIM)] if words else []
    if turn.is_valid is not None:
        mark = Content.styled("✓ valid", GOOD) if turn.is_valid else Content.styled("✗ cut off, not valid", WARN)
        last.insert(0, mark)
    lines += [Content.styled(" · ", DIM).join(last)] if last else []
    return Content("\n").join(lines)


def figures(turn: Turn) -> list[str]:
    return [f"{turn.tokens} tok"] + ([f"{turn.rate:.1f} tok/s"] if turn.rate is not None else [])
