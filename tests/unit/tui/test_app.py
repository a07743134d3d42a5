"""The app without a node: imports, bindings, themes."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys

import pytest
from textual.binding import Binding
from textual.widget import Widget

from core.events import Peer, Snapshot
from tests.support.app import app_with
from tests.support.screen_events import PLAN
from tui.app import MaclusterApp
from tui.control import keymap
from tui.demo_app import DemoApp
from tui.screens.api import ApiScreen, KeyList
from tui.screens.batch import BatchScreen
from tui.screens.check import CheckScreen
from tui.screens.conversations import ConversationsScreen
from tui.screens.dashboard import Dashboard
from tui.screens.dialogs import AskScreen, ChoiceScreen
from tui.screens.help import HelpScreen, topic_of
from tui.screens.hop import HopScreen
from tui.screens.logs import LogsScreen
from tui.screens.models import ModelsScreen
from tui.screens.pairing import PairingScreen
from tui.screens.peer import PeerScreen
from tui.screens.sampling import SamplingScreen
from tui.screens.split import SplitScreen
from tui.screens.trust import MacList, TrustScreen
from tui.widgets.chat_log import ChatLog
from tui.widgets.conversation_list import ConversationList
from tui.widgets.fit_preview import FitPreview
from tui.widgets.hop_table import HopPane
from tui.widgets.log_view import LogPane, LogView
from tui.widgets.model_list import ModelList
from tui.widgets.peer_pane import PeerPane
from tui.widgets.prompt import Prompt
from tui.widgets.recovery_pane import RecoveryChoices
from tui.widgets.row_list import RowList
from tui.widgets.split_pane import SplitPane
from tui.widgets.welcome import Welcome

FORBIDDEN = ("mlx", "mlx_lm", "psutil", "zeroconf", "core.models", "core.link", "core.node", "core.plan", "core.trust")
SCREENS = (
    Dashboard,
    ConversationsScreen,
    SamplingScreen,
    ModelsScreen,
    PairingScreen,
    TrustScreen,
    ChoiceScreen,
    AskScreen,
    HelpScreen,
    BatchScreen,
    SplitScreen,
)
OWN = (
    MaclusterApp,
    *SCREENS,
    CheckScreen,
    HopScreen,
    PeerScreen,
    Welcome,
    ChatLog,
    LogView,
    ModelList,
    MacList,
    PeerPane,
    Prompt,
    RecoveryChoices,
    RowList,
)
PANES: tuple[type[Widget], ...] = (
    ChatLog,
    LogView,
    ModelList,
    MacList,
    PeerPane,
    SplitPane,
    HopPane,
    FitPreview,
    Prompt,
    ConversationList,
    RecoveryChoices,
    RowList,
    Welcome,
)


@pytest.mark.slow
def test_the_app_imports_nothing_heavy_and_nothing_of_the_core_but_its_words() -> None:
    code = f"import sys, tui.app; print([m for m in {FORBIDDEN!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


async def test_once_the_screen_is_there_the_collector_works_again() -> None:
    gc.disable()
    try:
        async with app_with(Snapshot()).run_test() as pilot:
            async with asyncio.timeout(10):
                while not gc.isenabled():
                    await pilot.pause(0.02)
    finally:
        gc.enable()


def test_every_binding_of_ours_has_an_id_and_a_title() -> None:
    for owner in OWN:
        for binding in owner.__dict__.get("BINDINGS", ()):
            assert binding.id in keymap.OUR_IDS, (owner, binding)
            assert binding.tooltip
            assert binding.description


def test_ids_are_unique_and_actions_exist() -> None:
    assert len({a.id for a in keymap.EVERYTHING}) == len(keymap.EVERYTHING)
    owners: dict[tuple[keymap.Action, ...], type[object]] = {
        keymap.APP: MaclusterApp,
        keymap.API: ApiScreen,
        keymap.DEMO: DemoApp,
        keymap.KEY_LIST: KeyList,
        keymap.DASHBOARD: Dashboard,
        keymap.PANE: SplitPane,
        keymap.PEERS: PeerPane,
        keymap.PEER: PeerScreen,
        keymap.WELCOME: Welcome,
        keymap.CHECK: CheckScreen,
        keymap.CHAT: ChatLog,
        keymap.PROMPT: Prompt,
        keymap.RECOVERY: RecoveryChoices,
        keymap.LOGS: LogView,
        keymap.LOG_PANE: LogPane,
        keymap.LOGS_SCREEN: LogsScreen,
        keymap.MODEL_LIST: ModelList,
        keymap.MODELS: ModelsScreen,
        keymap.SPLIT: SplitScreen,
        keymap.PAIRING: PairingScreen,
        keymap.MAC_LIST: MacList,
        keymap.TRUST: TrustScreen,
        keymap.CONVERSATION_LIST: ConversationList,
        keymap.CONVERSATIONS: ConversationsScreen,
        keymap.SAMPLING: SamplingScreen,
        keymap.ROW_LIST: RowList,
        keymap.BATCH: BatchScreen,
        keymap.HOPS: HopPane,
        keymap.HOP: HopScreen,
        keymap.HELP: HelpScreen,
    }
    for group, owner in owners.items():
        for action in group:
            name = action.run.partition("(")[0]
            target, method = (MaclusterApp, name[4:]) if name.startswith("app.") else (owner, name)
            assert hasattr(target, f"action_{method}"), action


def test_keys_that_terminals_cannot_tell_apart_are_not_used() -> None:
    keys = {key for a in keymap.EVERYTHING for key in a.keys.split(",")}
    assert keys.isdisjoint({"ctrl+m", "ctrl+i", "ctrl+h", "ctrl+b", "ctrl+a"})


def test_every_pane_explains_itself() -> None:
    assert all(pane.HELP for pane in PANES)


def test_an_empty_no_color_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert not app_with(Snapshot()).no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert app_with(Snapshot()).no_color
    assert os.environ["NO_COLOR"] == "1"


async def test_help_is_made_from_the_bindings() -> None:
    peers = (Peer(device_id="A", name="[b]x", is_self=True),)
    app = app_with(Snapshot(peers=peers, plan=PLAN, plan_status="ready"))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        await pilot.press("escape", "1")
        topic = topic_of(app.screen)
        assert topic.title == "Dashboard · 1 Peers"
        assert topic.purpose == PeerPane.HELP
        told = {line.does for keys in (*topic.here, topic.everywhere) for line in keys.lines}
        assert {a.title for a in (*keymap.PEERS, *keymap.DASHBOARD)} <= told
        taken = {key for a in keymap.PEERS for key in a.keys.split(",")}  # they mean this Mac there
        assert {a.title for a in keymap.APP if a.keys and not taken & set(a.keys.split(","))} <= told


async def test_the_prompt_has_the_focus_when_a_model_is_loaded() -> None:
    app = app_with(Snapshot(plan=PLAN, plan_status="ready"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert app.focused is app.dashboard.prompt
        topic = topic_of(app.screen)
        assert topic.title == "Dashboard"
        titles = {line.does for keys in (*topic.here, topic.everywhere) for line in keys.lines}
        assert "Go to Peers" not in titles  # a digit is text here


async def test_without_a_model_the_chat_says_what_to_do_and_has_the_focus() -> None:
    app = app_with(Snapshot())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert app.focused is app.dashboard.chat
        await pilot.press("escape", "escape")
        assert app.is_running


def test_every_dialog_has_the_keys_of_small_dialogs() -> None:
    for screen in (ChoiceScreen, AskScreen):
        assert {b.id for b in screen.BINDINGS if isinstance(b, Binding)} == {a.id for a in keymap.ASKING}


async def test_the_palette_has_every_action() -> None:
    app = app_with(Snapshot())
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        titles = {c.title for c in app.get_system_commands(app.screen)}
        assert {a.title for a in (*keymap.APP, *keymap.DASHBOARD) if "focus" not in a.run} - titles == {"All commands"}
