"""The dashboard: four panes and the chat, or the chat with a strip on small terminals."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical
from textual.events import Key, Paste
from textual.widget import Widget

from tui.control.keymap import DASHBOARD
from tui.control.messages import ProblemRead, Seen
from tui.screens.base import SizedScreen, TooSmall
from tui.state.recovery import held
from tui.state.state import UiState
from tui.widgets.banner import Banner, outdated, startable
from tui.widgets.chat_log import ChatLog
from tui.widgets.cluster_strip import strip_content
from tui.widgets.hop_table import HopPane
from tui.widgets.key_bar import KeyBar
from tui.widgets.log_view import LogPane
from tui.widgets.peer_pane import PeerPane
from tui.widgets.prompt import Prompt
from tui.widgets.recovery_pane import RecoveryPane
from tui.widgets.split_pane import SplitPane
from tui.widgets.status_line import status_content, title_content
from tui.widgets.text_view import StateView
from tui.widgets.welcome import Welcome, is_before_first_answer, is_first_run

PANES = ("peers", "split", "hops", "logs", "chat")
LEAST_PEERS, MOST_PEERS, MOST_SPLIT, LOGS = 5, 13, 12, 5  # rows with their frames


class Dashboard(SizedScreen):
    """All panes and the chat."""

    TITLE = "Dashboard"
    AUTO_FOCUS = ""
    ACTIONS = DASHBOARD

    HELP = """Your Macs, working as one machine for language models."""

    def __init__(self, *, note: str, fps: int, starts_node: bool) -> None:
        super().__init__()
        self._starts_node = starts_node
        self._state = UiState()
        self._zoomed = ""
        self._last_pane = "peers"
        self._was_ready = False
        self._has_sizes = False
        self._unfinished = ExitStack()
        self._placed: Widget | None = None
        self._rows = (MOST_PEERS, MOST_SPLIT)
        self._is_recovering = False
        self._is_greeting = False
        self._has_greeted = bool(note)  # the demo pairs and loads by itself
        self._focused_before: Widget | None = None
        self.status = StateView(partial(status_content, note=note), id="status")
        self.offline = Banner(id="offline")
        self.trouble = Banner(id="trouble")
        self.peers = PeerPane(id="peers")
        self.split = SplitPane(id="split")
        self.hops = HopPane(id="hops")
        self.logs = LogPane(id="logs")
        self.chat = ChatLog(fps=fps, note=note)
        self.chat_title = StateView(title_content, id="chat-title")
        self.prompt = Prompt()
        self.strip = StateView(lambda state, width: strip_content(state, width, time.time()), id="strip")
        self.recovery = RecoveryPane()
        self.welcome = Welcome(id="welcome")

    def compose(self) -> ComposeResult:
        """Panes on the left, chat on the right; the style sheet hides what doesn't fit."""
        yield self.status
        yield self.chat_title
        yield self.offline
        with Horizontal(id="panes"):
            with Vertical(id="left"):
                yield from (self.peers, self.split, self.hops, self.logs)
            with Vertical(id="right"):
                yield from (self.chat, self.trouble, self.prompt)
        yield Container(self.welcome, id="first-run")
        yield self.recovery
        yield self.strip
        yield KeyBar()
        yield TooSmall()

    def on_mount(self) -> None:
        """Focus the chat until a model is loaded. Drawing empty panes takes time, so the first draw waits for sizes."""
        self._unfinished.enter_context(self.app.batch_update())
        self._place_focus(self.chat)

    def laid_out(self) -> None:
        if not self._has_sizes:
            self._has_sizes = True
            self._unfinished.close()
            self.call_after_refresh(self.post_message, Seen())
        self.show(self._state)
        self.logs.show(self._state)
        if self.focused is None or not all(node.display for node in self.focused.ancestors_with_self):
            self._focus_seen()  # a hidden widget would take keys

    def show(self, state: UiState) -> None:
        """Draw figures and states: twice a second, and at once after important events."""
        self._state = state
        if not self._can_draw:
            return
        offline = startable(state.offline) if self._starts_node else state.offline
        self.offline.show(offline or (outdated(state.snapshot) if state.attached else None))
        self.trouble.show(state.problem)
        self.status.show(state)
        for pane in (self.peers, self.split, self.hops):
            pane.show(state)
        self._leave_room_for_logs()
        self.strip.show(state)
        self.chat_title.show(state)
        self.chat.show(state)
        self.prompt.show(state)
        self._greet(state)
        self._make_room(held(state.snapshot) is not None)
        self.recovery.show(state)
        ready = state.snapshot.chat_status == "ready"
        if ready and not self._was_ready and self.focused in (None, self._placed):
            self._place_focus(self.prompt)
        self._was_ready = ready

    def _leave_room_for_logs(self) -> None:
        """Keep three log lines visible: the Macs and layers scroll instead."""
        free = self.size.height - 2 - LOGS - (self.hops.outer_size.height if self.hops.display else 0)
        split = min(MOST_SPLIT, free - LEAST_PEERS)
        peers = max(LEAST_PEERS, min(MOST_PEERS, free - (self.split.outer_size.height if self.split.display else 0)))
        rows = (0, 0) if self._zoomed else (peers, split)
        if rows != self._rows:
            self._rows = rows
            for pane, most in zip((self.peers, self.split), rows, strict=True):
                pane.styles.max_height = most or None

    @property
    def _can_draw(self) -> bool:
        return self._has_sizes and self.is_attached and self.app.is_running

    def show_answer(self, state: UiState) -> None:
        self._state = state
        if self._can_draw:
            self.chat.show(state)

    def on_text_area_changed(self) -> None:
        self.chat.give_way()

    def on_key(self, event: Key) -> None:
        is_letter = event.character is not None and event.is_printable and not event.character.isspace()
        if is_letter and self.focused is self.chat and event.key not in self.active_bindings:
            event.stop()
            self._write(event.character or "")

    def on_paste(self, event: Paste) -> None:
        event.stop()
        if self.focused is not self.prompt:
            self._write(event.text)

    def _write(self, text: str) -> None:
        self.prompt.write(text)
        if self._zoomed != "chat":
            self._zoom("")
        if self.prompt.display and not self._is_greeting:
            self.prompt.focus()
        else:
            self.app.notify("The pasted text is in the prompt.")

    def come_back(self) -> None:
        if self.focused in (None, self.chat):
            self._focus_chat()

    def _greet(self, state: UiState) -> None:
        if state.attached and not self._has_greeted:
            self._has_greeted = True
            if is_first_run(state):
                self._is_greeting = True
                self.set_class(True, "greeting")
                self._place_focus(self.welcome)
        elif self._is_greeting and state.attached and not is_before_first_answer(state):
            self._end_greeting()
        self.welcome.show(state)

    def _end_greeting(self) -> None:
        self._is_greeting = False
        self.set_class(False, "greeting")
        if self.focused in (None, self.welcome):
            self._place_focus(self.chat)
        self.call_after_refresh(self.laid_out)

    def _place_focus(self, widget: Widget) -> None:
        self._placed = widget
        widget.focus()

    def _make_room(self, is_recovering: bool) -> None:
        if is_recovering == self._is_recovering:
            return
        self._is_recovering = is_recovering
        self.set_class(is_recovering, "recovering")
        if not is_recovering:
            had_focus = self.focused is self.recovery.choices
            self.prompt.display = True
            if had_focus:
                (self._focused_before or self.chat).focus()
        elif not self.prompt.text:
            self._focused_before = self.focused
            self.recovery.display = True
            self.recovery.choices.focus()
            self.prompt.display = False

    def action_pane(self, number: int) -> None:
        if self._is_greeting:
            self._end_greeting()
        name = PANES[number - 1]
        if name != "chat":
            self._last_pane = name
        if self._zoomed or (self.has_class("narrow") and name != "chat"):
            self._zoom("" if name == "chat" and self.has_class("narrow") else name)
        self.query_one(f"#{name}").focus()

    def action_panes(self) -> None:
        if self._is_greeting:
            self._end_greeting()
        elif self._zoomed:
            self._leave_zoom()
        else:
            self._zoom(self._last_pane)
            self.query_one(f"#{self._last_pane}").focus()

    def action_zoom(self) -> None:
        if self._is_greeting:
            self._end_greeting()
        elif self._zoomed:
            self._zoom("")
        elif self.focused is not None:
            self._zoom("chat" if self.focused is self.prompt else self.focused.id or "")

    async def action_back(self) -> None:
        """One step back: stop the answer, dismiss the banner, unzoom, leave the prompt. Esc never stops a recovery."""
        if self._is_recovering and self.focused is self.recovery.choices:
            self.chat.focus()
        elif self._is_greeting:
            self._end_greeting()
        elif self._state.answer is not None and not self._is_recovering:
            await self.run_action("app.stop_answer")
        elif self._state.editing:
            await self.run_action("app.end_edit")
        elif self._state.problem is not None:
            self.post_message(ProblemRead())
        elif self._zoomed:
            self._leave_zoom()
        elif self.focused is self.prompt:
            self.chat.focus()

    def _leave_zoom(self) -> None:
        self._zoom("")
        self._focus_chat()

    def _focus_seen(self) -> None:
        if self._is_greeting:
            self.welcome.focus()
        elif self._zoomed not in ("", "chat"):
            self.query_one(f"#{self._zoomed}").focus()
        else:
            self._focus_chat()

    def _focus_chat(self) -> None:
        (self.prompt if self._was_ready and self.prompt.display else self.chat).focus()

    def _zoom(self, name: str) -> None:
        self._zoomed = name
        if name and name != "chat":
            self._last_pane = name
        self.set_class(bool(name) and name != "chat", "zoom-left")
        self.set_class(name == "chat", "zoom-chat")
        self.chat.zoom(name == "chat")
        for pane in PANES:
            self.query_one(f"#{pane}").set_class(pane == name, "zoomed")
        self.call_after_refresh(self.laid_out)
