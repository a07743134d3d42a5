"""The app: follows the node's events, keeps the state, acts on what widgets and keys ask for."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from rich.text import Text
from textual.actions import ActionParseResult
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.screen import Screen
from textual.theme import Theme

from core.errors import Problem
from core.events import (
    AnyEvent,
    Batch,
    HopSample,
    LogLine,
    ModelsChanged,
    PlanLoaded,
    Progress,
    RequestDone,
    Snapshot,
    StageState,
    TokenEvent,
    Transfer,
)
from core.requests import LoadRequest, PreviewRequest, RecoveryOrder
from core.settings import default_home
from tui import clipboard, conversation, crash, hindrances, quitting, state
from tui.actions import bindings, key_word, palette, why_not
from tui.archive import Archive
from tui.bridge import FAILURES, follow, problem_of
from tui.catalog import Catalog
from tui.disks import names_of
from tui.look import COMPLAINT_S, FULL_FPS, complaints_of, frames_per_s, theme_of
from tui.macs import Macs
from tui.markdown import warm_up
from tui.plain import PlainGlyphs
from tui.preferences import DEFAULTS, Preferences, memory_in, remember_theme
from tui.registry import APP
from tui.screens.dashboard import Dashboard
from tui.screens.help import HelpScreen, topic_of
from tui.screens.models import ModelsScreen
from tui.screens.pairing import PairingScreen
from tui.screens.table import SCREENS
from tui.state import UiState
from tui.talk import Talk
from tui.themes import OWN_THEMES, no_color_kept, own_variables
from tui.widgets.messages import (
    Copied,
    Edited,
    Failed,
    MacAsked,
    ModelChosen,
    ModelPointed,
    Noted,
    ProblemRead,
    RecoveryChosen,
    Sent,
    TakenUp,
)

if TYPE_CHECKING:
    from tui.client import NodeClient

# whole paths: a subclass may live in another folder
STYLES = Path(__file__).parent / "screens"
EXAMINE_AFTER_S = 0.4
# these come many times a second; a tick draws them
_FREQUENT = (Batch, TokenEvent, HopSample, LogLine, Progress, StageState)


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
    talk: Talk
    archive: Archive

    def __init__(
        self,
        client: NodeClient,
        *,
        note: str = "",
        folder: Path | None = None,
        preferences: Preferences = DEFAULTS,
        ends_node: bool = False,
    ) -> None:
        with no_color_kept():
            super().__init__()
        self.client = client
        self.note = note
        self.folder = folder or default_home().root
        self.preferences = preferences
        self._ends_node = ends_node
        self._keeping = asyncio.Lock()
        self.state = UiState()
        self.catalog = Catalog(client)
        self.macs = Macs(self)
        self.talk = Talk(self)
        self.archive = Archive(self)
        self._fps = frames_per_s(preferences, os.environ)
        if self._fps < FULL_FPS or preferences.plain:
            self.animation_level = "none"
        self._glyphs = [PlainGlyphs()] if preferences.plain else []
        for theme in OWN_THEMES:
            self.register_theme(theme)
        self.theme = theme_of(preferences, self.available_themes)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of ours that Textual's themes do not have."""
        return own_variables(self.current_theme)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line passes before it is drawn."""
        return [*super().get_line_filters(), *self._glyphs]

    def get_key_display(self, binding: Binding) -> str:
        """Keys by the words that are printed on them."""
        return key_word(super().get_key_display(binding))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No screen needs the key that opens it."""
        return not (action == "open" and isinstance(self.screen, SCREENS[str(parameters[0])].kind))

    def why_not(self, run: str) -> str:
        """Why an action of the app cannot be done now; "" if it can."""
        return hindrances.why_not(self.state, run)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do it, or say why that cannot be now."""
        if isinstance(action, str) and (why := why_not(self, default_namespace or self, action)):
            self.note_down(f"Not now: {why}.")
            return True
        return await super().run_action(action, default_namespace, namespaces)

    def get_default_screen(self) -> Screen[object]:
        """The dashboard."""
        self.dashboard = Dashboard(note=self.note, fps=self._fps)
        return self.dashboard  # type: ignore[return-value]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action, a "Load" for every model that fits, and a "Pair" for every Mac that was seen."""
        yield from palette(self, screen)
        for choice in self.catalog.choices or ():
            if choice.preview.plan is not None and not choice.loaded:
                chosen = partial(self.post_message, ModelChosen(self.catalog.wish(choice)))
                yield SystemCommand(f"Load {choice.name}", "Load this model", chosen)
        for peer in state.strangers(self.state):
            yield SystemCommand(f"Pair {peer.name}", f"Mac {peer.short_id}", partial(self.action_pair, peer.device_id))

    def on_mount(self) -> None:
        """Start to follow the node; draw figures at 2 Hz and log lines at 10 Hz."""
        self.set_keymap(dict(self.preferences.keys))
        self.theme_changed_signal.subscribe(self, self._remember)
        for complaint in complaints_of(self.preferences, self.available_themes):
            self.notify(complaint, severity="warning", timeout=COMPLAINT_S, markup=False)
        self.run_worker(follow(self.client, self._take, self._lose), group="events", exit_on_error=False)
        self.set_interval(0.5, lambda: self.set_state(state.ticked(self.state, time.time())))
        self.set_interval(0.1, lambda: self.dashboard.show_logs(self.state))
        self.call_after_refresh(calm_collector)
        self.set_timer(0.7, lambda: self.run_worker(warm_up, group="warm", thread=True, exit_on_error=False))

    def set_state(self, new: UiState) -> None:
        """Take and draw a state."""
        self.state = new
        self.archive.look(new)
        self.dashboard.show(new)
        for screen in self.screen_stack[1:]:
            if isinstance(screen, Follower):
                screen.show(new)
        self.refresh_bindings()  # what can be done now may be something else

    def command(self, call: Coroutine[Any, Any, object]) -> None:
        """Run a command of the node beside everything else; the person is told what fails."""
        self.run_worker(self._told(call), group="commands", exit_on_error=False)

    def tell(self, problem: Problem) -> None:
        """Say what failed."""
        problem = state.washed(problem)
        self.notify(f"{problem.what}\n{problem.fix}".rstrip(), severity="error", markup=False)

    def note_down(self, text: str) -> None:
        """Say something in passing."""
        self.notify(text, markup=False)

    async def _told(self, call: Coroutine[Any, Any, object]) -> None:
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
        if not was_attached or status != self.state.snapshot.plan_status or isinstance(event, ModelsChanged):
            self.find_models()
        if isinstance(event, Transfer) and event.problem is not None:
            self.tell(event.problem)
        elif isinstance(event, Transfer) and event.state == "done":
            self.note_down(f"{event.model} is on the disk of {names_of(self.state.snapshot, [event.mac])}.")
        if not was_attached or (isinstance(event, RequestDone) and event.problem is not None):
            self.talk.find_unfinished()
        if isinstance(event, Snapshot | PlanLoaded | RequestDone):  # every answer makes predictions better
            advise: Any = self._advise
            self.run_worker(advise, group="advice", exclusive=True, exit_on_error=False)

    async def _advise(self) -> None:
        now, advice = self.state.snapshot, ""
        if now.plan is not None and now.plan_status == "ready":
            with suppress(*FAILURES):  # a node that does not answer is told of elsewhere
                advice = await self.catalog.advice_on(now.plan, now.peers)
        self.dashboard.split.advise(advice)

    def find_models(self) -> None:
        """Ask what is there, and how it fits."""
        # made when it begins: one that is replaced before that leaves nothing behind
        find: Any = self._fetch_models
        self.run_worker(find, group="models", exclusive=True, exit_on_error=False)

    async def _fetch_models(self) -> None:
        await self._told(self.catalog.fetch(self.state.skipped))
        self._show_choices()

    async def _examine(self, wish: PreviewRequest, after_s: float) -> None:
        """Plan one model of the picker with what examining it shows; waits first, for the cursor may move on."""
        await asyncio.sleep(after_s)
        await self._told(self.catalog.examine(state.of_used(self.state, wish)))
        self._show_choices()

    def _show_choices(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, ModelsScreen) and self.catalog.choices is not None:
                screen.show_choices()

    async def _load(self, wish: LoadRequest) -> None:
        preview = await self.catalog.load(state.of_used(self.state, wish))
        if preview.problem is not None:
            self.set_state(state.failed(self.state, preview.problem))

    async def _copy(self, text: str) -> None:
        self.note_down(await clipboard.copy(text, self.copy_to_clipboard, self.folder))

    def _remember(self, theme: Theme) -> None:
        """Keep the theme that was chosen for the next start."""
        if self.preferences.theme not in ("", theme.name):
            self.note_down(f"config.toml names {self.preferences.theme}: that one is back at the next start.")
        self.command(self._keep_theme())

    async def _keep_theme(self) -> None:
        async with self._keeping:  # one after the other; the last one is what is chosen then
            try:
                await asyncio.to_thread(remember_theme, memory_in(self.folder), self.theme)
            except OSError as error:
                self.note_down(f"The theme is not remembered: {error.strerror}.")

    def _fatal_error(self) -> None:
        """Textual would print what the variables hold, and so what was typed."""
        assert self._exception is not None
        self._exit_renderables.append(Text(crash.write(self._exception, self.folder)))
        self._close_messages_no_wait()

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

    def on_edited(self, message: Edited) -> None:
        """Put the question into the prompt."""
        self.talk.edit(message.number)

    def on_copied(self, message: Copied) -> None:
        """Copy, and say where to."""
        self.command(self._copy(message.text))

    def on_model_chosen(self, message: ModelChosen) -> None:
        """Load a model of the picker."""
        self.command(self._load(message.wish))

    def on_model_pointed(self, message: ModelPointed) -> None:
        """Examine the model on which the cursor of the picker rests."""
        after_s = 0.0 if message.at_once else EXAMINE_AFTER_S
        self.run_worker(self._examine(message.wish, after_s), group="examine", exclusive=True, exit_on_error=False)

    def on_recovery_chosen(self, message: RecoveryChosen) -> None:
        """Tell the node what the person wants."""
        self.command(self.client.choose(RecoveryOrder(choice=message.choice)))

    def on_taken_up(self, message: TakenUp) -> None:
        """Show the words of a kept conversation."""
        self.talk.leave()
        self.set_state(conversation.taken_up(self.state, message.said, time.time()))

    def on_mac_asked(self, message: MacAsked) -> None:
        """Do something with a Mac."""
        self.macs.act(message.device_id, message.wish)

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

    def action_add_mac(self) -> None:
        """Pair with a Mac at an address."""
        self.macs.act("", "add")

    def action_rescan(self) -> None:
        """Look for Macs again."""
        self.command(self.macs.rescan())

    def action_help(self) -> None:
        """Help for what has the focus."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(topic_of(self.screen)))

    def action_new_chat(self) -> None:
        """Begin a new conversation; the one before is kept, and its running answer stopped."""
        self.command(self.talk.begin())

    def action_retry(self) -> None:
        """Ask the last question again."""
        self.talk.again()

    def action_end_edit(self) -> None:
        """Give up the question that is written anew."""
        self.talk.give_up_edit()

    def action_export(self) -> None:
        """Write the conversation to a file."""
        self.command(self.archive.export())

    def action_private(self) -> None:
        """Keep nothing of the conversation, or keep it again."""
        self.command(self.archive.switch_private())

    async def action_quit(self) -> None:
        """Save what is not saved yet, then end; asks first if that takes a model from other Macs. Asked already, it is
        meant.
        """
        if isinstance(self.screen, PairingScreen):
            await self.screen.action_quit()
        elif self._ends_node and (effect := quitting.effect(self.state)) and not quitting.is_asked(self.screen):
            self.push_screen(quitting.question(effect), self._quit_if)
        else:
            await self._quit()

    async def _quit_if(self, answer: int | None) -> None:
        if answer:
            await self._quit()

    async def _quit(self) -> None:
        await self.archive.settle()
        self.exit()

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
