"""One message of the conversation, and how an answer grows without getting slow.

Text that is finished is a single Static a piece; only the tail that still grows is a Markdown widget.
"""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown, Static

from core.events import Recovery
from core.text import Clean
from tui.format import DIM, WARN, clock, count, duration
from tui.markdown import TAIL_LIMIT, cut_at, new_parser, open_fence, pieces, render
from tui.recovery import STOPS, since
from tui.turns import Remark, Turn

FIGURES_S = 0.25


class MessageView:
    """One message: its turn and the widgets that show it.

    They lie side by side in the scroller and not in a container of their own: every level of nesting is measured anew
    for each token.
    """

    def __init__(self, turn: Turn, *widgets: Widget) -> None:
        self.turn = turn
        self.widgets = list(widgets)
        self.finished = True
        self._marked = False

    def mark(self, on: bool) -> None:
        """Show that this is the message which keys act on."""
        self._marked = on
        for widget in self.widgets:
            widget.set_class(on, "marked")

    async def advance(self, turn: Turn, now: float, recovery: Recovery | None) -> None:
        """Show what `turn` has more than before; a question, which is finished at once, never has."""

    def zoom(self, on: bool) -> None:
        """Zoomed, an answer has its figures in its head and not below it; a question has none."""


class QuestionView(MessageView):
    """What the person wrote, as it was written."""

    def __init__(self, turn: Turn) -> None:
        head = Content.assemble(("you", "bold $primary"), (f" · {clock(turn.at)}", DIM))
        super().__init__(turn, Static(Content("\n").join([head, Content(turn.text)]), markup=False, classes="message"))


class Piece(Static):
    """A finished piece of an answer. It is drawn anew only when the width changes."""

    def __init__(self, text: Clean) -> None:
        super().__init__(markup=False, classes="piece")
        self._text = text
        self._drawn_for = 0

    def on_mount(self) -> None:
        """Draw for the width of the message, which is known."""
        if isinstance(self.parent, Widget):
            self._draw(self.parent.content_size.width)

    def on_resize(self) -> None:
        """Another width: wrap again."""
        self._draw(self.size.width)

    def _draw(self, width: int) -> None:
        if width > 0 and width != self._drawn_for:
            self._drawn_for = width
            self.update(render(self._text, width))


class AnswerView(MessageView):
    """An answer: head, finished pieces with remarks between them, live tail, and a line of figures."""

    def __init__(self, turn: Turn) -> None:
        self._head_shown = head_content(turn, None)
        self._head = Static(self._head_shown, markup=False, classes="head")
        self._tail = _new_tail()
        self._foot = Static(markup=False, classes="message")
        self._foot_shown = Content("")
        self._drawn_at = 0.0
        self._zoomed = False
        # one that is whole already, as in a conversation that was reopened, needs no tail
        is_whole = turn.done and not turn.remarks
        body = [Piece(text) for text in pieces(turn.text)] if is_whole else [self._tail]
        super().__init__(turn, self._head, *body, self._foot)
        self._taken = len(turn.text) if is_whole else 0
        self._remarks = 0
        self._tail_text = ""
        self.finished = is_whole
        if is_whole:
            self._draw_figures(turn.at, None)

    async def advance(self, turn: Turn, now: float, recovery: Recovery | None) -> None:
        """Show what `turn` has more than before, and the time; called 30 times a second while it is written."""
        if self.finished:
            await self._begin_again()
        self.turn = turn
        for remark in turn.remarks[self._remarks :]:
            await self._grow(turn.text[self._taken : remark.at])
            await self._remark(remark)
        await self._grow(turn.text[self._taken :])
        if turn.done:
            await self._finish()
        self._draw_figures(now, recovery)

    def zoom(self, on: bool) -> None:
        """Move the figures, at once where nothing else will."""
        if on == self._zoomed:
            return
        self._zoomed, self._drawn_at = on, 0.0
        if self.finished:
            self._draw_figures(self.turn.at, None)

    async def _grow(self, more: str) -> None:
        if not more:
            return
        self._taken += len(more)
        self._tail_text += more
        cut = cut_at(self._tail_text) if len(self._tail_text) > TAIL_LIMIT else 0
        if cut:
            await self._freeze(cut)
        else:
            # awaited here, in the one flusher: nothing can be in flight when the tail is cut
            await self._tail.append(more)

    async def _freeze(self, cut: int) -> None:
        done, self._tail_text = self._tail_text[:cut], self._tail_text[cut:]
        with self._tail.app.batch_update():
            await self._add(Piece(Clean(done)))
            await self._tail.update(self._tail_text)

    async def _remark(self, remark: Remark) -> None:
        """What is above a remark is finished as it stands; code goes on as code below it."""
        self._remarks += 1
        done, self._tail_text = self._tail_text, open_fence(self._tail_text)
        with self._tail.app.batch_update():
            if done.strip():
                await self._add(Piece(Clean(done)))
            line = Content.styled(f"─── {remark.words} ───", DIM)
            await self._add(Static(line, markup=False, classes="message"))
            await self._tail.update(self._tail_text)

    async def _finish(self) -> None:
        self.finished = True
        with self._tail.app.batch_update():
            if self._tail_text.strip():
                await self._add(Piece(Clean(self._tail_text)))
            self.widgets.remove(self._tail)
            await self._tail.remove()

    async def _begin_again(self) -> None:
        """An answer that was interrupted goes on."""
        self.finished, self._tail_text, self._tail = False, "", _new_tail()
        self.widgets.insert(-1, self._tail)
        if isinstance(self._foot.parent, Widget):
            await self._foot.parent.mount(self._tail, before=self._foot)

    async def _add(self, widget: Widget) -> None:
        widget.set_class(self._marked, "marked")
        self.widgets.insert(-2, widget)
        if isinstance(self._tail.parent, Widget):
            await self._tail.parent.mount(widget, before=self._tail)

    def _draw_figures(self, now: float, recovery: Recovery | None) -> None:
        # they need no 30 frames a second
        if now - self._drawn_at < FIGURES_S and not self.finished:
            return
        self._drawn_at = now
        self._head_shown = _redrawn(
            self._head, head_content(self.turn, recovery, zoomed=self._zoomed), self._head_shown
        )
        foot = foot_content(self.turn, now, recovery, zoomed=self._zoomed)
        self._foot.display = bool(foot.plain)
        self._foot_shown = _redrawn(self._foot, foot, self._foot_shown)


def _redrawn(widget: Static, line: Content, shown: Content) -> Content:
    """Draw `line` if `shown` is another one; what stays a single line needs no new layout."""
    if not line.is_same(shown):
        short = max(line.cell_length, shown.cell_length) < widget.size.width and "\n" not in line.plain
        widget.update(line, layout=not (short and shown.plain))
    return line


def _new_tail() -> Markdown:
    return Markdown(parser_factory=new_parser, open_links=False, classes="tail")


def head_content(turn: Turn, recovery: Recovery | None, *, zoomed: bool = False) -> Content:
    """Who wrote it and when, and where it stands still; zoomed also the figures."""
    paused = not turn.done and recovery is not None and recovery.state in STOPS
    where = f" · paused at token {turn.tokens}" if paused else ""
    words = [clock(turn.at), *(_head_figures(turn) if zoomed and not paused else ())]
    return Content.assemble(("model", "bold $accent"), ("".join(f" · {word}" for word in words), DIM), (where, WARN))


def _head_figures(turn: Turn) -> list[str]:
    if turn.done:
        return figures(turn) if turn.tokens else []
    if not turn.tokens:
        return [_waiting(turn)]
    return [f"writing {turn.rate:.1f} tok/s" if turn.rate is not None else "writing"]


def _waiting(turn: Turn) -> str:
    return f"reading {count(turn.prompt_tokens)} tokens" if turn.prompt_tokens else "waiting for the node"


def foot_content(turn: Turn, now: float, recovery: Recovery | None = None, *, zoomed: bool = False) -> Content:
    """The figures under an answer; above them why it stopped, if it did not simply end. Zoomed, the head has them."""
    if not turn.done and recovery is not None:
        if recovery.state in STOPS:
            return Content.styled(f"─── paused · {since(recovery, now)} ───", WARN)
        return Content.styled(f"{recovery.text} · {since(recovery, now)} · Esc stop", WARN)
    if not turn.done and zoomed:
        return Content("")
    if not turn.done:
        words = figures(turn) if turn.tokens else [_waiting(turn)]
        words += [duration(max(0.0, float(round(now - turn.at)))) if now - turn.at >= 1 else "", "Esc stop"]
        return Content.styled(" · ".join(w for w in words if w), DIM)
    lines = [f"─── {turn.why} ───"] if turn.why else []
    if turn.tokens and not zoomed:
        words = figures(turn)
        if turn.last_at is not None and turn.last_at - turn.at >= 1:
            words.append(duration(float(round(turn.last_at - turn.at))))
        if turn.ttft_s is not None:
            words.append(f"first token {duration(turn.ttft_s)}")
        lines.append(" · ".join(words))
    return Content.styled("\n".join(lines), DIM)


def figures(turn: Turn) -> list[str]:
    """Tokens and tokens per second."""
    return [f"{turn.tokens} tok"] + ([f"{turn.rate:.1f} tok/s"] if turn.rate is not None else [])
