"""The app: follows the node's events, keeps the state, acts on what widgets and keys ask for."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from core.errors import Problem
from core.events import AnyEvent, HopSample, LogLine, Progress, RequestDone, StageState, TokenEvent, Topology
from core.requests import (
    AnswerId,
    ChatRequest,
    LoadRequest,
    ModelChoice,
    PreviewRequest,
    RecoveryOrder,
    UnfinishedAnswer,
)
from core.settings import default_home
from tui import clipboard, keeping, state
from tui.actions import APP, bindings, key_word, palette
from tui.bridge import FAILURES, follow, problem_of
from tui.markdown import warm_up
from tui.recovery import held
from tui.screens.dashboard import Dashboard
from tui.screens.help import HelpScreen, topic_of
from tui.screens.models import ModelsScreen
from tui.screens.pairing import PairingScreen
from tui.screens.trust import TrustScreen
from tui.state import UiState
from tui.themes import DEFAULT_VARIABLES, OWN_THEMES, no_color_kept
from tui.widgets.messages import Copied, Failed, ModelChosen, ModelPointed, Noted, ProblemRead, RecoveryChosen, Sent

if TYPE_CHECKING:
    from tui.client import NodeClient

# whole paths: a subclass may live in another folder
SCREENS = Path(__file__).parent / "screens"
EXAMINE_AFTER_S = 0.4
# what is drawn anew when anything happens, beside the dashboard
FOLLOWERS = (ModelsScreen, PairingScreen, TrustScreen)
# these come many times a second; a tick draws them
_FREQUENT = (TokenEvent, HopSample, LogLine, Progress, StageState)


def calm_collector() -> None:
    """What exists now lives as long as the app; full collections over it would cause pauses."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


class MaclusterApp(App[None], inherit_bindings=False):
    """The face of one node. `note` is a line for the top and the empty chat, such as "demo: three simulated Macs"."""

    # the default screen is there before it could bring its own style sheet
    CSS_PATH: ClassVar[list[str | PurePath]] = [SCREENS / "base.tcss", SCREENS / "dashboard.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP)]
    TITLE = "macluster"

    def __init__(self, client: NodeClient, *, note: str = "") -> None:
        with no_color_kept():
            super().__init__()
        self.client = client
        self.note = note
        self.state = UiState()
        self.choices: tuple[ModelChoice, ...] | None = None
        self._catalog_names: dict[str, str] = {}
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
        return not isinstance(self.screen, {"models": ModelsScreen, "trust": TrustScreen}.get(action, ()))

    def get_default_screen(self) -> Screen[object]:
        """The dashboard."""
        self.dashboard = Dashboard(note=self.note, fps=self._fps)
        return self.dashboard  # type: ignore[return-value]

    def on_mount(self) -> None:
        """Start to follow the node; draw figures at 2 Hz and log lines at 10 Hz."""
        self.run_worker(follow(self.client, self._take, self._lose), group="events", exit_on_error=False)
        self.set_interval(0.5, self._tick)
        self.set_interval(0.1, lambda: self.dashboard.show_logs(self.state))
        self.call_after_refresh(calm_collector)
        self.set_timer(0.7, lambda: self.run_worker(warm_up, group="warm", thread=True, exit_on_error=False))

    def _lose(self, problem: Problem) -> None:
        self._set(state.detached(self.state, problem))

    def _take(self, event: AnyEvent) -> None:
        was_attached, status = self.state.attached, self.state.snapshot.plan_status
        self.state = state.fold(self.state, event, time.time())
        if isinstance(event, TokenEvent):
            self.dashboard.show_chat(self.state)
        elif not isinstance(event, _FREQUENT):
            self._set(self.state)
        if not was_attached or status != self.state.snapshot.plan_status:
            self._fetch(self._fetch_choices, "models")
        if not was_attached or (isinstance(event, RequestDone) and event.problem is not None):
            self._fetch(self._fetch_unfinished, "unfinished")

    def _set(self, new: UiState) -> None:
        self.state = new
        self.dashboard.show(new)
        for screen in self.screen_stack[1:]:
            if isinstance(screen, FOLLOWERS):
                screen.show(new)

    def _tick(self) -> None:
        self._set(state.ticked(self.state, time.time()))

    def _fetch(self, fetching: Callable[[], Coroutine[None, None, None]], group: str) -> None:
        # made when it begins: one that is replaced before that leaves nothing behind
        self.run_worker(fetching, group=group, exclusive=True, exit_on_error=False)  # type: ignore[arg-type]

    async def _fetch_choices(self) -> None:
        try:
            raw = await self.client.models()
        except FAILURES as error:
            self._tell(error)
            return
        choices = tuple(state.washed(choice) for choice in raw)
        self._catalog_names = {shown.name: choice.name for shown, choice in zip(choices, raw, strict=True)}
        self._show_choices(choices)

    async def _fetch_unfinished(self) -> None:
        try:
            unfinished = await self.client.unfinished()
        except FAILURES as error:
            self._tell(error)
            return
        self._set(state.offered(self.state, unfinished, time.time()))
        self.refresh_bindings()

    def _show_choices(self, choices: tuple[ModelChoice, ...]) -> None:
        self.choices = choices
        for screen in self.screen_stack:
            if isinstance(screen, ModelsScreen):
                screen.set_choices(choices)

    async def _examine(self, name: str, context: int, topology: Topology | None) -> None:
        """Plan one model of the picker with what examining it shows; waits first, for the cursor may move on."""
        await asyncio.sleep(EXAMINE_AFTER_S)
        model = self._catalog_names.get(name, name)
        try:
            raw = await self.client.plan(PreviewRequest(model=model, context=context, topology=topology))
        except FAILURES as error:
            self._tell(error)
            return
        preview, change = state.washed(raw), msgspec.structs.replace
        self._show_choices(tuple(change(c, preview=preview) if c.name == name else c for c in self.choices or ()))

    def on_failed(self, message: Failed) -> None:
        """Say what failed."""
        self._say(message.problem)

    def _tell(self, error: Exception) -> None:
        self._say(problem_of(error))

    def _say(self, problem: Problem) -> None:
        problem = state.washed(problem)
        self.notify(f"{problem.what}\n{problem.fix}".rstrip(), severity="error", markup=False)

    def on_sent(self, message: Sent) -> None:
        """Send the prompt, or say why that cannot be now."""
        if recovery := held(self.state.snapshot):
            self.notify(f"Nothing can be asked now. {recovery.text}", markup=False)
        elif self.state.answer is not None:
            self.notify("An answer is being written. Esc stops it.", markup=False)
        elif self.state.snapshot.plan_status != "ready":
            self.notify("No model is ready. Ctrl+O loads one.", markup=False)
        else:
            self.dashboard.prompt.taken()
            self._ask(message.text)

    def on_copied(self, message: Copied) -> None:
        """Copy, and say where to."""
        self._command(self._copy(message.text))

    def on_noted(self, message: Noted) -> None:
        """Say why a key did nothing."""
        self.notify(message.text, markup=False)

    def on_model_chosen(self, message: ModelChosen) -> None:
        """Load a model of the picker."""
        self._command(self._load(message.name, message.topology))

    def on_model_pointed(self, message: ModelPointed) -> None:
        """Examine the model on which the cursor of the picker rests."""
        examination = self._examine(message.name, message.context, message.topology)
        self.run_worker(examination, group="examine", exclusive=True, exit_on_error=False)

    def on_recovery_chosen(self, message: RecoveryChosen) -> None:
        """Tell the node what the person wants."""
        self._command(self.client.choose(RecoveryOrder(choice=message.choice)))

    def on_problem_read(self, message: ProblemRead) -> None:
        """Put the banner away."""
        self._set(state.failed(self.state, None))

    def _ask(self, text: str) -> None:
        self._set(state.sent(self.state, text, time.time()))
        self.run_worker(self._chat(self.state.next_number), group="chat", exit_on_error=False)

    async def _chat(self, number: int) -> None:
        try:
            reply = await self.client.chat(ChatRequest(messages=state.conversation(self.state)))
            if self.state.answer is None or self.state.next_number != number:
                # stopped or cleared before the node had answered
                await self.client.cancel(reply.request_id)
                return
        except FAILURES as error:
            if self.state.next_number == number:
                self._set(state.refused(self.state, problem_of(error)))
            return
        self._set(state.accepted(self.state, reply.request_id, reply.prompt_tokens, time.time()))

    def action_go_on(self) -> None:
        """Continue the answer that was interrupted."""
        kept, snapshot = state.interrupted(self.state), self.state.snapshot
        if kept is None:
            self.notify("No answer of this Mac was interrupted.", markup=False)
        elif snapshot.plan_status != "ready":
            self.notify(f"It was written with {kept.model}. Ctrl+O loads that; then it can be continued.", markup=False)
        else:
            self.run_worker(self._go_on(kept), group="go on", exclusive=True, exit_on_error=False)

    async def _go_on(self, kept: UnfinishedAnswer) -> None:
        try:
            reply = await self.client.go_on(AnswerId(request_id=kept.request_id))
        except FAILURES as error:
            self._set(state.failed(self.state, problem_of(error)))
            return
        now = time.time()
        again = state.continued(self.state, kept, now)
        self._set(state.accepted(again, reply.request_id, reply.prompt_tokens, now))
        self.refresh_bindings()

    async def _load(self, name: str, topology: Topology | None) -> None:
        preview = await self.client.load(LoadRequest(model=self._catalog_names.get(name, name), topology=topology))
        if preview.problem is not None:
            self._set(state.failed(self.state, preview.problem))

    def _command(self, call: Coroutine[None, None, None]) -> None:
        self.run_worker(self._told(call), group="commands", exit_on_error=False)

    async def _told(self, call: Coroutine[None, None, None]) -> None:
        try:
            await call
        except FAILURES as error:
            self._tell(error)

    async def _copy(self, text: str) -> None:
        where = await clipboard.copy(text, self.copy_to_clipboard, default_home().root)
        self.notify(where, markup=False)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action, and a "Load" for every model that fits."""
        yield from palette(self, screen)
        for choice in self.choices or ():
            if choice.preview.plan is not None and not choice.loaded:
                chosen = partial(self.post_message, ModelChosen(choice.name))
                yield SystemCommand(f"Load {choice.name}", "Load this model", chosen)
        for peer in state.strangers(self.state):
            yield SystemCommand(f"Pair {peer.name}", f"Mac {peer.short_id}", partial(self.action_pair, peer.device_id))

    def action_models(self) -> None:
        """Open the picker."""
        if not isinstance(self.screen, ModelsScreen):
            self.push_screen(ModelsScreen(self.state, self.choices))
            self._fetch(self._fetch_choices, "models")

    def action_pair(self, device_id: str = "") -> None:
        """Open the pairing dialog, with a Mac that is chosen already or the list of those that were seen."""
        chosen = next((p for p in self.state.snapshot.peers if p.device_id == device_id), None)
        if not self.state.attached:
            self.notify("The node of this Mac is not running.", markup=False)
        elif not isinstance(self.screen, PairingScreen):
            self.push_screen(PairingScreen(self.client, self.state, chosen))

    def action_trust(self) -> None:
        """Open the trust screen."""
        if not isinstance(self.screen, TrustScreen):
            self.push_screen(TrustScreen(self.client, self.state))

    def action_help(self) -> None:
        """Help for what has the focus."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(topic_of(self.screen)))

    def action_new_chat(self) -> None:
        """Forget the conversation; a running answer is stopped."""
        self.action_stop_answer()
        self._set(state.cleared(self.state))

    def action_keep(self) -> None:
        """Keep the conversation under a name."""
        self._command(keeping.keep(self, self.client))

    def action_take_up(self) -> None:
        """Go on with a conversation that was kept; a running answer is stopped."""
        self._command(self._take_up())

    async def _take_up(self) -> None:
        if kept := await keeping.take_up(self, self.client):
            self.action_stop_answer()
            self._set(state.taken_up(self.state, kept.messages, time.time()))

    def action_retry(self) -> None:
        """Ask the last question again."""
        kept, question = state.retried(self.state)
        if not question:
            self.notify("There is no finished question to ask again.", markup=False)
        elif self.state.snapshot.plan_status != "ready":
            self.notify("No model is ready. Ctrl+O loads one.", markup=False)
        else:
            self.state = kept
            self._ask(question)

    def action_stop_answer(self) -> None:
        """Stop the answer; what is written stays."""
        answer = self.state.answer
        if answer is not None and answer.request_id:
            self._command(self.client.cancel(answer.request_id))
        elif answer is not None:
            self._set(state.stopped(self.state))

    def action_unload(self) -> None:
        """Unload the model, or cancel its loading."""
        self._command(self.client.unload())

    def action_copy_or_stop(self) -> None:
        """Copy the selection; else stop the answer; else say how to quit."""
        focused = self.screen.focused
        selected = self.screen.get_selected_text() or getattr(focused, "selected_text", "")
        if selected:
            self.post_message(Copied(selected))
        elif self.state.answer is not None:
            self.action_stop_answer()
        else:
            self.notify("Ctrl+Q quits; the node and the model go on.", markup=False)
