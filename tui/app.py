"""The app: follows the node's events, keeps the state, acts on what widgets and keys ask for."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Coroutine, Iterable
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from core.errors import Problem
from core.events import AnyEvent, HopSample, LogLine, Progress, RequestDone, StageState, TokenEvent
from core.requests import LoadRequest, PreviewRequest, RecoveryOrder
from core.settings import default_home
from tui import clipboard, state
from tui.actions import bindings, key_word, palette
from tui.bridge import FAILURES, follow, problem_of
from tui.catalog import Catalog
from tui.markdown import warm_up
from tui.registry import APP
from tui.screens.dashboard import Dashboard
from tui.screens.help import HelpScreen, topic_of
from tui.screens.models import ModelsScreen
from tui.screens.pairing import PairingScreen
from tui.screens.table import SCREENS
from tui.state import UiState
from tui.talk import Talk
from tui.themes import DEFAULT_VARIABLES, OWN_THEMES, no_color_kept
from tui.widgets.messages import Copied, Failed, ModelChosen, ModelPointed, Noted, ProblemRead, RecoveryChosen, Sent

if TYPE_CHECKING:
    from tui.client import NodeClient

# whole paths: a subclass may live in another folder
STYLES = Path(__file__).parent / "screens"
EXAMINE_AFTER_S = 0.4
# these come many times a second; a tick draws them
_FREQUENT = (TokenEvent, HopSample, LogLine, Progress, StageState)


@runtime_checkable
class Follower(Protocol):
    """A screen that is drawn anew when anything happens."""

    def show(self, state: UiState) -> None:
        """Draw that."""


def calm_collector() -> None:
    """What exists now lives as long as the app; full collections over it would cause pauses."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


class MaclusterApp(App[None], inherit_bindings=False):
    """The face of one node. `note` is a line for the top and the empty chat, such as "demo: three simulated Macs"."""

    # the default screen is there before it could bring its own style sheet
    CSS_PATH: ClassVar[list[str | PurePath]] = [STYLES / "base.tcss", STYLES / "dashboard.tcss"]
    ACTIONS = APP
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP)]
    TITLE = "macluster"

    client: NodeClient
    state: UiState
    catalog: Catalog

    def __init__(self, client: NodeClient, *, note: str = "") -> None:
        with no_color_kept():
            super().__init__()
        self.client = client
        self.note = note
        self.state = UiState()
        self.catalog = Catalog(client)
        self.talk = Talk(self)
        self._fps = 30
        if os.environ.get("SSH_CONNECTION"):  # every repaint crosses the network
            self._fps, self.animation_level = 15, "none"
        for theme in OWN_THEMES:
            self.register_theme(theme)
        self.theme = OWN_THEMES[0].name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of ours that Textual's themes do not have."""
        return DEFAULT_VARIABLES

    def get_key_display(self, binding: Binding) -> str:
        """Keys by the words that are printed on them."""
        return key_word(super().get_key_display(binding))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No screen needs the key that opens it, and only an answer that was interrupted can go on."""
        if action == "go_on":
            return state.interrupted(self.state) is not None
        return not (action == "open" and isinstance(self.screen, SCREENS[str(parameters[0])].kind))

    def get_default_screen(self) -> Screen[object]:
        """The dashboard."""
        self.dashboard = Dashboard(note=self.note, fps=self._fps)
        return self.dashboard  # type: ignore[return-value]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action, a "Load" for every model that fits, and a "Pair" for every Mac that was seen."""
        yield from palette(self, screen)
        for choice in self.catalog.choices or ():
            if choice.preview.plan is not None and not choice.loaded:
                chosen = partial(self.post_message, ModelChosen(LoadRequest(model=choice.name)))
                yield SystemCommand(f"Load {choice.name}", "Load this model", chosen)
        for peer in state.strangers(self.state):
            yield SystemCommand(f"Pair {peer.name}", f"Mac {peer.short_id}", partial(self.action_pair, peer.device_id))

    def on_mount(self) -> None:
        """Start to follow the node; draw figures at 2 Hz and log lines at 10 Hz."""
        self.run_worker(follow(self.client, self._take, self._lose), group="events", exit_on_error=False)
        self.set_interval(0.5, lambda: self.set_state(state.ticked(self.state, time.time())))
        self.set_interval(0.1, lambda: self.dashboard.show_logs(self.state))
        self.call_after_refresh(calm_collector)
        self.set_timer(0.7, lambda: self.run_worker(warm_up, group="warm", thread=True, exit_on_error=False))

    def set_state(self, new: UiState) -> None:
        """Take and draw a state."""
        self.state = new
        self.dashboard.show(new)
        for screen in self.screen_stack[1:]:
            if isinstance(screen, Follower):
                screen.show(new)

    def command(self, call: Coroutine[Any, Any, None]) -> None:
        """Run a command of the node beside everything else; the person is told what fails."""
        self.run_worker(self._told(call), group="commands", exit_on_error=False)

    def tell(self, problem: Problem) -> None:
        """Say what failed."""
        problem = state.washed(problem)
        self.notify(f"{problem.what}\n{problem.fix}".rstrip(), severity="error", markup=False)

    def note_down(self, text: str) -> None:
        """Say something in passing."""
        self.notify(text, markup=False)

    async def _told(self, call: Coroutine[Any, Any, None]) -> None:
        try:
            await call
        except FAILURES as error:
            self.tell(problem_of(error))

    def _lose(self, problem: Problem) -> None:
        self.set_state(state.detached(self.state, problem))

    def _take(self, event: AnyEvent) -> None:
        was_attached, status = self.state.attached, self.state.snapshot.plan_status
        self.state = state.fold(self.state, event, time.time())
        if isinstance(event, TokenEvent):
            self.dashboard.show_chat(self.state)
        elif not isinstance(event, _FREQUENT):
            self.set_state(self.state)
        if not was_attached or status != self.state.snapshot.plan_status:
            self._find_models()
        if not was_attached or (isinstance(event, RequestDone) and event.problem is not None):
            self.talk.find_unfinished()

    def _find_models(self) -> None:
        # made when it begins: one that is replaced before that leaves nothing behind
        find: Any = self._fetch_models
        self.run_worker(find, group="models", exclusive=True, exit_on_error=False)

    async def _fetch_models(self) -> None:
        await self._told(self.catalog.fetch())
        self._show_choices()

    async def _examine(self, wish: PreviewRequest) -> None:
        """Plan one model of the picker with what examining it shows; waits first, for the cursor may move on."""
        await asyncio.sleep(EXAMINE_AFTER_S)
        await self._told(self.catalog.examine(wish))
        self._show_choices()

    def _show_choices(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ModelsScreen) and self.catalog.choices is not None:
                screen.set_choices(self.catalog.choices)

    async def _load(self, wish: LoadRequest) -> None:
        preview = await self.catalog.load(wish)
        if preview.problem is not None:
            self.set_state(state.failed(self.state, preview.problem))

    async def _copy(self, text: str) -> None:
        self.note_down(await clipboard.copy(text, self.copy_to_clipboard, default_home().root))

    def on_failed(self, message: Failed) -> None:
        """Say what failed."""
        self.tell(message.problem)

    def on_noted(self, message: Noted) -> None:
        """Say why a key did nothing."""
        self.note_down(message.text)

    def on_sent(self, message: Sent) -> None:
        """Send the prompt, or say why that cannot be now."""
        if self.talk.send(message.text):
            self.dashboard.prompt.taken()

    def on_copied(self, message: Copied) -> None:
        """Copy, and say where to."""
        self.command(self._copy(message.text))

    def on_model_chosen(self, message: ModelChosen) -> None:
        """Load a model of the picker."""
        self.command(self._load(message.wish))

    def on_model_pointed(self, message: ModelPointed) -> None:
        """Examine the model on which the cursor of the picker rests."""
        self.run_worker(self._examine(message.wish), group="examine", exclusive=True, exit_on_error=False)

    def on_recovery_chosen(self, message: RecoveryChosen) -> None:
        """Tell the node what the person wants."""
        self.command(self.client.choose(RecoveryOrder(choice=message.choice)))

    def on_problem_read(self, message: ProblemRead) -> None:
        """Put the banner away."""
        self.set_state(state.failed(self.state, None))

    def action_open(self, name: str) -> None:
        """Open one of the screens."""
        if not isinstance(self.screen, SCREENS[name].kind):
            self.push_screen(SCREENS[name].make(self))

    def action_pair(self, device_id: str = "") -> None:
        """Open the pairing dialog, with a Mac that is chosen already or the list of those that were seen."""
        chosen = next((p for p in self.state.snapshot.peers if p.device_id == device_id), None)
        if not self.state.attached:
            self.note_down("The node of this Mac is not running.")
        elif not isinstance(self.screen, PairingScreen):
            self.push_screen(PairingScreen(self.client, self.state, chosen))

    def action_help(self) -> None:
        """Help for what has the focus."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(topic_of(self.screen)))

    def action_new_chat(self) -> None:
        """Forget the conversation; a running answer is stopped."""
        self.talk.clear()

    def action_retry(self) -> None:
        """Ask the last question again."""
        self.talk.again()

    def action_go_on(self) -> None:
        """Continue the answer that was interrupted."""
        self.talk.go_on()

    def action_stop_answer(self) -> None:
        """Stop the answer; what is written stays."""
        self.talk.stop()

    def action_keep(self) -> None:
        """Keep the conversation under a name."""
        self.command(self.talk.keep())

    def action_take_up(self) -> None:
        """Go on with a conversation that was kept."""
        self.command(self.talk.take_up())

    def action_unload(self) -> None:
        """Unload the model, or cancel its loading."""
        self.command(self.client.unload())

    def action_copy_or_stop(self) -> None:
        """Copy the selection; else stop the answer; else say how to quit."""
        focused = self.screen.focused
        selected = self.screen.get_selected_text() or getattr(focused, "selected_text", "")
        if selected:
            self.post_message(Copied(selected))
        elif self.state.answer is not None:
            self.talk.stop()
        else:
            self.note_down("Ctrl+Q quits; the node and the model go on.")
