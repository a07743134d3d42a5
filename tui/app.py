"""The app: follows the node's events, keeps the state, acts on what widgets and keys ask for."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from textual.actions import ActionParseResult
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.command import Command, CommandPalette
from textual.dom import DOMNode
from textual.events import Event, Key, Paste
from textual.filter import LineFilter
from textual.screen import Screen

from core.errors import Problem
from core.requests.plans import RecoveryOrder
from core.settings import default_home
from tui.client import NodeClient
from tui.control import messages
from tui.control.actions import bindings, key_title, palette, why_not
from tui.control.chat_controller import ChatController
from tui.control.clipboard import Clipboard
from tui.control.conversation_archive import ConversationArchive
from tui.control.event_handler import EventHandler, follow
from tui.control.key_order import KeyOrder
from tui.control.keymap import APP, Action
from tui.control.mac_controller import MacController
from tui.control.model_catalog import ModelCatalog
from tui.control.model_controller import ModelController
from tui.control.node_restart import restart
from tui.control.palette import Commands, Recent
from tui.control.plain_glyphs import PlainGlyphs
from tui.control.preferences import DEFAULTS, FULL_FPS, Preferences
from tui.control.quitting import Owner, Quitting, words
from tui.control.slash_commands import SLASH_COMMANDS, alone, option_of
from tui.control.theme_choice import ThemeChoice, Themes, config_complaints, theme_of
from tui.control.themes import OWN_THEMES, legible, no_color_kept, own_variables
from tui.screens.base import STYLES, Follower, is_open, make_screen
from tui.screens.base_app import BaseApp
from tui.screens.dashboard import Dashboard
from tui.screens.help import HelpScreen, topic_of
from tui.state import disabled_reasons, state
from tui.state.state import UiState
from tui.widgets.chat_log import warm_up
from tui.widgets.cursor_list import PaletteWithCursor, ThemePalette
from tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from tui.own_node import OwnNode


class MaclusterApp(BaseApp, inherit_bindings=False):
    """The app of one node. `note` is a line for the top and the empty chat; `node` starts a node if none runs."""

    # the default screen exists before it could load its own style sheet
    CSS_PATH: ClassVar[list[str | PurePath]] = [STYLES / "base.tcss", STYLES / "dashboard.tcss"]
    ACTIONS: ClassVar[tuple[Action, ...]] = APP
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP)]
    TITLE = "macluster"
    COMMANDS: ClassVar[set[Any]] = {Commands}

    def __init__(
        self,
        client: NodeClient,
        *,
        note: str = "",
        folder: Path | None = None,
        preferences: Preferences = DEFAULTS,
        node: OwnNode | None = None,
    ) -> None:
        with no_color_kept():
            super().__init__()
        self.client: NodeClient = client
        self.note = note
        self._node = node
        self.folder = folder or default_home().root
        self.preferences = preferences
        self.state: UiState = UiState()
        self.catalog: ModelCatalog = ModelCatalog(client)
        self.models = ModelController(self, self.catalog)
        self.macs = MacController(self, self.models)
        self.conversations: ConversationArchive = ConversationArchive(self)
        self.chat: ChatController = ChatController(self, self.conversations)
        self.recent = Recent()
        self._events = EventHandler(self, self.models, self.chat)
        self._copier = Clipboard(self, self.folder)
        self._quitting = Quitting(self, self.conversations, self._owner, node.leave if node else lambda: None)
        self._keys = KeyOrder(self, super().on_event)
        self._fps = preferences.frames_per_s(os.environ)
        if self._fps < FULL_FPS or preferences.plain:
            self.animation_level = "none"
        self.set_class(preferences.plain, "plain")
        self._glyphs = [PlainGlyphs()] if preferences.plain else []
        for theme in OWN_THEMES:
            self.register_theme(theme)
        self.theme = theme_of(preferences, self.available_themes)
        self._themes = ThemeChoice(self, self.folder, preferences.theme)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return own_variables(self.current_theme)

    def get_css_variables(self) -> dict[str, str]:
        colours = super().get_css_variables()
        self.theme_variables = {**colours, **legible(colours)}
        return self.theme_variables

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._glyphs]

    def get_key_display(self, binding: Binding) -> str:
        return key_title(binding.key, arrows=not self.preferences.plain)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (action == "open" and is_open(self.screen, str(parameters[0])))

    def why_not(self, run: str) -> str:
        return disabled_reasons.why_not(self.state, run, starts_node=self._node is not None)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        if isinstance(action, str) and (why := why_not(self, default_namespace or self, action)):
            self.notify(why)
            return True
        return await super().run_action(action, default_namespace, namespaces)

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            await self._keys.take(event)
        else:
            await super().on_event(event)

    def _owner(self) -> Owner:
        if self.note:
            return "demo"
        return "window" if self._node is not None and self._node.is_running else "service"

    def get_default_screen(self) -> Screen[object]:
        self.dashboard = Dashboard(note=self.note, fps=self._fps, starts_node=self._node is not None)
        return self.dashboard  # type: ignore[return-value]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield from palette(self, screen)
        yield from self.models.offers()
        yield from self.macs.offers()

    def on_mount(self) -> None:
        self.set_keymap(dict(self.preferences.keys))
        self.theme_changed_signal.subscribe(self, self._themes.changed)
        for complaint in config_complaints(self.preferences, self.available_themes):
            self.notify(complaint, severity="warning", timeout=20.0)
        self.set_interval(0.5, self._tick)
        self.set_interval(0.1, lambda: self.dashboard.logs.show(self.state))
        self.set_timer(0.7, lambda: self.run_worker(warm_up, group="warm", thread=True, exit_on_error=False))

    def _tick(self) -> None:
        self.chat.keep_draft()
        self.set_state(state.ticked(self.state, time.time()))

    def on_seen(self) -> None:
        gc.enable()  # starting is faster without it
        gc.freeze()  # a full collection of what exists would be a long pause
        gc.set_threshold(3_000, 5, 200)  # 3,000 objects take 5 ms
        # an uncaught defect ends the app: the screen would freeze without a message
        begin: Any = partial(follow, self.client, self._events.handle, self._lose)
        self.run_worker(begin, group="events")

    def _lose(self, problem: Problem) -> None:
        starting = self._node is not None and self._node.is_starting and not self.state.attached
        trouble = self._node.trouble if self._node is not None else None
        self._events.lose(None if starting else trouble or problem)

    def set_state(self, new: UiState) -> None:
        """Take and draw a state. While the app ends there may be no screen left."""
        self.state = new
        if not self.screen_stack:
            return
        self.conversations.look(new)
        self.dashboard.show(new)
        for screen in self.screen_stack[1:]:
            if isinstance(screen, Follower):
                screen.show(new)
        self.refresh_bindings()  # the enabled actions may have changed

    def show_answer(self) -> None:
        self.dashboard.show_answer(self.state)

    @property
    def prompt(self) -> Prompt:
        return self.dashboard.prompt

    def open_screen(self, name: str, **details: object) -> None:
        """Open the screen of that name. An open one stays, or is replaced if other `details` are given."""
        if not is_open(self.screen, name):
            self.push_screen(make_screen(self, name, **details), lambda _: self.dashboard.come_back())
        elif details:
            self.switch_screen(make_screen(self, name, **details))

    async def on_sent(self, message: messages.Sent) -> None:
        if option := option_of(message.text):
            self.chat.set_option(option)
        elif command := SLASH_COMMANDS.get(message.text):
            self.prompt.taken()
            await self.run_action(command)
        elif command := alone(message.text):
            self.notify(f"{command} takes no text after it.")
        else:
            self.chat.send(message.text)

    def on_edited(self, message: messages.Edited) -> None:
        self.chat.edit(message.number)

    def on_branched(self, message: messages.Branched) -> None:
        self.dashboard.chat.look_for(self.chat.branch(message.number, message.step))

    def on_copied(self, message: messages.Copied) -> None:
        self._copier.copy(message.text)

    def on_recovery_chosen(self, message: messages.RecoveryChosen) -> None:
        self.in_background(self.client.choose, RecoveryOrder(choice=message.choice))

    def on_mac_asked(self, message: messages.MacAsked) -> None:
        self.macs.act(message.device_id, message.action)

    def on_problem_read(self, message: messages.ProblemRead) -> None:
        self.set_state(state.failed(self.state, None))

    def action_open(self, name: str, at: str = "") -> None:
        self.open_screen(name, **({"at": at} if at else {}))
        if name == "models":  # every answer makes the forecasts better
            self.models.find()

    def action_pair(self, device_id: str = "") -> None:
        self.macs.pair(device_id)

    def action_add_mac(self) -> None:
        self.macs.act("", "add")

    def action_rescan(self) -> None:
        self.in_background(self.macs.rescan)

    def action_start_node(self, port: int | None = None) -> None:
        assert self._node is not None
        if self._node.is_running:
            self.notify("macluster's service is already starting.")
            return
        self._node.start(*(() if port is None else ("--port", str(port))))
        self._events.lose(None)

    def action_restart_node(self) -> None:
        self.in_background(restart, self)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(PaletteWithCursor())

    def search_themes(self) -> None:
        self._themes.begin()
        self.push_screen(ThemePalette(providers=[Themes], placeholder="Search for themes…"))

    def on_command_palette_option_highlighted(self, event: CommandPalette.OptionHighlighted) -> None:
        option = event.highlighted_event.option
        if isinstance(option, Command) and option.hit.text is not None:
            self._themes.look_at(option.hit.text)

    def on_command_palette_closed(self, event: CommandPalette.Closed) -> None:
        self._themes.end(is_chosen=event.option_selected)

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(topic_of(self.screen)))

    def action_new_chat(self) -> None:
        self.in_background(self.chat.begin)

    def action_last_chat(self) -> None:
        self.chat.open_last()

    def action_retry(self) -> None:
        self.chat.again()

    def action_end_edit(self) -> None:
        self.chat.give_up_edit()

    def action_export(self) -> None:
        self.in_background(self.conversations.export)

    def action_keep_nothing(self) -> None:
        self.in_background(self.conversations.switch_keeping)

    async def action_quit(self) -> None:
        self.chat.keep_draft(at_once=True)
        self.in_background(self._quitting.leave, group="quit")

    def action_go_on(self) -> None:
        self.chat.go_on()

    def action_stop_answer(self) -> None:
        self.chat.stop()

    def action_keep(self) -> None:
        self.action_open("conversations")
        self.call_after_refresh(self.run_action, "save", self.screen)

    def action_unload(self) -> None:
        self.in_background(self.client.unload)

    def action_copy_or_stop(self) -> None:
        selected = self.screen.get_selected_text() or getattr(self.screen.focused, "selected_text", "")
        if selected:
            self._copier.copy(selected)
        elif not self.chat.stop():
            self.notify(words(self.state, self._owner()))
