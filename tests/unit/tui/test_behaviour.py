"""Rules of every screen: reasons for dead keys, sizes, quitting, a crash, the help, the logs."""

from __future__ import annotations

import random
import stat
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot
from textual.worker import WorkerFailed

from core.errors import NodeError, Problem
from core.events import LogLine, PairingChanged, Peer, RequestStarted, Snapshot
from core.requests.plans import ModelChoice
from core.requests.trust import PairingOffer
from core.settings import Home
from tests.support import waiting
from tests.support.app import StillNode, text_of
from tests.support.screen_events import PLAN
from tests.support.search import SEARCH
from tui.app import MaclusterApp
from tui.control import crash, quitting
from tui.own_node import OwnNode
from tui.screens.dialogs import ChoiceScreen
from tui.screens.help import HelpLine, HelpScreen, Keys, Topic, help_content, searched
from tui.screens.logs import LogsScreen
from tui.screens.pairing import PairingScreen
from tui.state import disabled_reasons, state
from tui.state.conversation import sent
from tui.state.logs import LogFilter, filter_words, is_wanted, long_lines, next_mac
from tui.state.state import UiState
from tui.widgets.key_bar import KeyBar
from tui.widgets.log_view import LogView

PEERS = (Peer(device_id="A", name="a", trust="paired", state="connected", is_self=True), Peer(device_id="B", name="b"))
READY = Snapshot(peers=PEERS, plan=PLAN, plan_status="ready")
LINES = tuple(
    LogLine(at=1000 + n / 8, level=("INFO", "WARN", "ERROR")[n % 3], source=("mini", "studio")[n % 2], text=f"line {n}")
    for n in range(12)
)


class Started(OwnNode):
    """A node started by this program, without its process."""

    is_running = True


def app_with(snapshot: Snapshot, folder: Path, own: OwnNode | None = None) -> MaclusterApp:
    node = StillNode(snapshot)
    node.home = Home(folder)  # type: ignore[attr-defined]
    return MaclusterApp(node, folder=folder, node=own)  # type: ignore[arg-type]


async def sees(pilot: Pilot[None], *words: str) -> str:
    deadline = time.monotonic() + 10
    app = pilot.app
    assert isinstance(app, MaclusterApp)
    while not all(word in (text := text_of(app)) for word in words):
        assert time.monotonic() < deadline, f"{words} not in\n{text}"
        await pilot.pause(0.02)
    return text


async def until(pilot: Pilot[None], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


ASKED = sent(UiState(snapshot=READY, attached=True), "why?", 1.0)


@pytest.mark.parametrize(
    ("now", "run", "why"),
    [
        pytest.param(UiState(), "pair", "isn't running", id="offline"),
        pytest.param(UiState(attached=True), "pair", "", id="pair"),
        pytest.param(UiState(attached=True), "go_on", "There is no interrupted answer to continue.", id="go-on"),
        pytest.param(UiState(attached=True), "stop_answer", "No answer is being written.", id="stop"),
        pytest.param(UiState(attached=True), "unload", "No model is loaded.", id="unload"),
        pytest.param(UiState(attached=True), "retry", "Nothing has been asked yet.", id="retry"),
        pytest.param(ASKED, "retry", "An answer is being written", id="retry-under-way"),
        pytest.param(UiState(attached=True), "keep", "Ctrl+O loads one", id="keep"),
        pytest.param(UiState(attached=True), "open('trust')", "", id="open"),
    ],
)
def test_why_an_action_cannot_be_done_now(now: UiState, run: str, why: str) -> None:
    found = disabled_reasons.why_not(now, run)
    assert why in found
    assert bool(why) == bool(found)


async def test_a_key_that_can_do_nothing_says_why_and_stays_in_its_place(tmp_path: Path) -> None:
    app = app_with(READY, tmp_path)
    async with app.run_test(size=(120, 36), notifications=True) as pilot:
        await sees(pilot, "5 Chat · m")
        await pilot.press("escape")
        await sees(pilot, "c Continue")
        content = app.screen.query_one(KeyBar).shown
        at = content.plain.index("c Continue")
        assert any(span.start <= at < span.end and span.style == "$text-muted" for span in content.spans)
        await pilot.press("c")
        assert [n.message for n in app._notifications][-1] == "There is no interrupted answer to continue."
        titles = {c.title: c.help for c in app.get_system_commands(app.screen)}
        assert titles["Stop the answer"] == "No key\nNo answer is being written."
        assert titles["Ask the last question again"] == "Key: Ctrl+R\nNothing has been asked yet."


@pytest.mark.slow
@pytest.mark.search
async def test_no_size_breaks_it_and_nothing_is_wider_than_the_terminal(tmp_path: Path) -> None:
    dice = random.Random(9)
    app = app_with(msgspec.structs.replace(READY, logs=LINES), tmp_path)
    keys = ("1", "2", "3", "4", "5", "z", "f2", "tab", "escape", "f1", "enter")
    async with app.run_test(size=(120, 36)) as pilot:
        await sees(pilot, "5 Chat")
        await pilot.press("escape")
        for _ in range(15 * SEARCH):
            width, height = dice.randint(20, 200), dice.randint(5, 60)
            await pilot.resize_terminal(width, height)
            await pilot.press(dice.choice(keys))
            lines = text_of(app).splitlines()
            assert len(lines) == height
            assert max(map(len, lines)) <= width
        while len(app.screen_stack) > 1:
            app.pop_screen()
        await pilot.resize_terminal(59, 16)
        await sees(pilot, "This terminal is 59x16. macluster needs at least")
        await pilot.resize_terminal(60, 16)
        await sees(pilot, "Ctrl+Q Quit")


@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param((s), id=f"{s[0]}x{s[1]}") for s in ((120, 36), (80, 24), (60, 16))])
async def test_panes_by_digit_f2_and_zoom_at_every_size(size: tuple[int, int], tmp_path: Path) -> None:
    app = app_with(READY, tmp_path)
    async with app.run_test(size=size) as pilot:
        await sees(pilot, "Type below and press Enter")
        await pilot.press("escape")
        for key, title in (("1", "1 Peers"), ("2", "2 Layer split"), ("3", "3 Hops"), ("4", "4 Logs"), ("5", "5 Chat")):
            await pilot.press(key)
            await sees(pilot, title)
        await pilot.press("f2")
        await sees(pilot, "4 Logs")
        await pilot.press("escape")
        await sees(pilot, "5 Chat")


async def test_in_the_smallest_terminal_other_programs_have_a_line_of_everything(tmp_path: Path) -> None:
    app = app_with(READY, tmp_path)
    async with app.run_test(size=(60, 16)) as pilot:
        await until(pilot, lambda: app.state.attached)
        app.open_screen("api")
        await sees(pilot, "○ off", "n makes one", "No requests right now", "In the shell", "Esc Back")
        assert app.screen.max_scroll_y == 0


async def test_a_layout_that_comes_just_after_a_digit_leaves_the_focus_in_the_pane(tmp_path: Path) -> None:
    app = app_with(READY, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.focused is app.prompt)
        for key, pane in ((3, app.dashboard.hops), (1, app.dashboard.peers)):
            app.dashboard.action_pane(key)
            app.dashboard.laid_out()  # while the hidden prompt still has the focus
            app.dashboard.set_focus(pane)
            app.dashboard.laid_out()  # before the pane has any room
            await pilot.pause()
            assert app.focused is pane


def test_quitting_is_a_question_where_something_is_lost() -> None:
    own = msgspec.structs.replace(PEERS[0], device_id=PLAN.stages[0].device_id)
    loaded = UiState(snapshot=Snapshot(peers=(own,), plan=PLAN, plan_status="ready", running=("r",)))
    alone = msgspec.structs.replace(PLAN, stages=PLAN.stages[:1])
    here = UiState(snapshot=Snapshot(peers=(own,), plan=alone, plan_status="ready"))
    table: list[tuple[UiState, quitting.Owner, tuple[str, ...]]] = [
        (UiState(snapshot=Snapshot(peers=PEERS)), "window", ()),
        (UiState(snapshot=Snapshot(peers=PEERS)), "demo", ()),
        (loaded, "window", ("1 other Mac", "can continue it")),
        (here, "window", ("unloads m",)),
        (here, "demo", ("The demo ends",)),
        (loaded, "service", ()),
        (sent(loaded, "why?", 1.0), "service", ("the rest won't be saved",)),
    ]
    for now, owner, words in table:
        asked = quitting.effect(now, owner)
        assert bool(asked) == bool(words), (owner, asked)
        assert all(word in asked for word in words), asked


def test_ctrl_c_says_what_quitting_ends() -> None:
    here = UiState(attached=True)
    assert "its model keep running" in quitting.words(here, "service")
    assert "stops macluster on this Mac" in quitting.words(here, "window")
    assert "end with the demo" in quitting.words(here, "demo")
    assert quitting.words(UiState(), "service") == "Ctrl+Q quits."


async def test_quitting_asks_with_staying_first_and_the_second_ctrl_q_is_meant(tmp_path: Path) -> None:
    app = app_with(READY, tmp_path, Started(Home(tmp_path)))
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "5 Chat · m")
        await pilot.press("ctrl+q")
        await sees(pilot, "Quit?", "Stay")
        await pilot.press("enter")
        assert app.is_running
        assert not isinstance(app.screen, ChoiceScreen)
        await pilot.press("ctrl+q")
        await sees(pilot, "Quit?")
        await pilot.press("ctrl+q")
    assert app.return_code == 0


@pytest.mark.parametrize("where", [pytest.param("f1", id="help"), pytest.param("ctrl+p", id="palette")])
async def test_ctrl_q_works_over_everything(where: str, tmp_path: Path) -> None:
    app = app_with(READY, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "5 Chat · m")
        await pilot.press(where)
        await pilot.pause()
        assert len(app.screen_stack) == 2
        await pilot.press("ctrl+q")
    assert app.return_code == 0


async def test_a_question_about_quitting_that_is_given_up_is_asked_again(tmp_path: Path) -> None:
    app = app_with(READY, tmp_path, Started(Home(tmp_path)))
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "5 Chat · m")
        await pilot.press("ctrl+q")
        await sees(pilot, "Quit?")
        app.workers.cancel_group(app, "quit")
        await pilot.press("escape")
        await pilot.press("ctrl+q")
        await sees(pilot, "Quit?", "Stay")
        assert app.is_running


async def test_a_defect_in_what_takes_the_events_ends_the_app_and_leaves_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "my prompt"

    def broken(*_: object) -> UiState:
        raise ZeroDivisionError(secret)

    monkeypatch.setattr(state, "fold", broken)
    app = app_with(READY, tmp_path)
    with pytest.raises(WorkerFailed):
        async with app.run_test(size=(80, 24)):
            await waiting.until(lambda: app.return_code == 1)
    written = (tmp_path / "tui-crash.log").read_text()
    assert "ZeroDivisionError" in written
    assert "event_handler.py" in written
    assert secret not in written


class Asked(StillNode):
    """A node that keeps the addresses to pair at."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.offers: list[PairingOffer] = []

    async def open_pairing(self) -> None:
        pass

    async def offer_pairing(self, offer: PairingOffer) -> None:
        self.offers.append(offer)


async def test_an_address_that_is_added_while_the_pairing_dialog_is_open_is_tried(tmp_path: Path) -> None:
    node = Asked(READY)
    app = MaclusterApp(node, folder=tmp_path)  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "5 Chat · m")
        app.action_pair()
        await sees(pilot, "Pair with another Mac")
        app.action_add_mac()
        await sees(pilot, "HOST:PORT")
        await pilot.press(*"10.0.0.9:4717", "enter")
        await until(pilot, lambda: bool(node.offers))
        assert node.offers == [PairingOffer(host="10.0.0.9", port=4717)]
        assert [type(screen) for screen in app.screen_stack[1:]] == [PairingScreen]


async def test_how_an_earlier_pairing_ended_is_not_shown_of_the_one_that_just_began(tmp_path: Path) -> None:
    ended = PairingChanged(state="failed", problem=Problem(kind="PairingError", what="The digits differ."))
    node = Asked(msgspec.structs.replace(READY, pairing=ended))
    app = MaclusterApp(node, folder=tmp_path)  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "5 Chat · m")
        app.action_pair()
        await sees(pilot, "another Mac: show this Mac's address")
        await pilot.press("end", "enter")
        await sees(pilot, "◌ waiting")
        # a second passes before the node reports the start
        dialog = app.screen
        assert isinstance(dialog, PairingScreen)
        dialog.show(app.state)
        await pilot.pause()
        assert "◌ waiting" in text_of(app)


class Refusing(StillNode):
    """A node that lists its models once, and then refuses."""

    asked = 0

    async def models(self) -> list[ModelChoice]:
        self.asked += 1
        if self.asked > 1:
            raise NodeError("Not now.", "Try again.")
        return []


async def test_a_refusal_is_said_and_the_picker_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = MaclusterApp(Refusing(READY), folder=tmp_path)  # type: ignore[arg-type]
    drawn: list[bool] = []
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await sees(pilot, "5 Chat · m")
        await until(pilot, lambda: app.catalog.choices is not None)
        monkeypatch.setattr(app, "show_models", lambda: drawn.append(True))
        app.models.find()
        await until(pilot, lambda: bool(drawn))
        assert any("Not now." in n.message for n in app._notifications)


@pytest.mark.promise("T14")
def test_what_is_left_of_a_crash_holds_no_words_of_the_person(tmp_path: Path) -> None:
    secret = "my prompt"
    try:
        raise KeyError(secret)
    except KeyError as error:
        said = crash.write(error, tmp_path / "home")
    path = tmp_path / "home" / "tui-crash.log"
    assert str(path) in said
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = path.read_text()
    assert "KeyError" in written
    assert "test_behaviour.py" in written
    assert secret not in written
    assert secret not in said


PAIR, FORGET, BACK = HelpLine("p", "Pair"), HelpLine("x", "Forget", "nobody is here"), HelpLine("Esc", "Back")
TOPIC = Topic(
    "Trust · Peers",
    "The Macs.",
    (Keys("In this pane", (PAIR, FORGET)), Keys("Trust", (BACK,))),
    Keys("Everywhere", (HelpLine("Ctrl+Q", "Quit"),)),
)


@pytest.mark.parametrize("width", [pytest.param(110, id="wide"), pytest.param(70, id="narrow")])
def test_the_help_finds_keys_by_what_is_typed(width: int) -> None:
    text = help_content(TOPIC, width).plain
    assert " – nobody is here" in text
    assert max(map(len, text.splitlines()[:6])) <= width
    found = searched(TOPIC, "qui")
    assert (found.here, [line.does for line in found.everywhere.lines]) == ((), ["Quit"])
    assert searched(TOPIC, "esc").here == (Keys("Trust", (BACK,)),)
    assert "No key found" in help_content(searched(TOPIC, "fly"), width).plain


async def test_what_is_typed_in_the_help_searches_and_escape_clears_it_first(tmp_path: Path) -> None:
    app = app_with(READY, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "5 Chat · m")
        await pilot.press("f1")
        await sees(pilot, "type to search the keys")
        await pilot.press(*"zoom q")
        await sees(pilot, "/ zoom q", "No key found")
        await pilot.press("backspace", "backspace")
        await sees(pilot, "/ zoom")
        await pilot.press("escape")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)


def test_log_lines_are_chosen_by_weight_mac_and_text() -> None:
    def shown(chosen: LogFilter) -> int:
        return sum(is_wanted(line, chosen) for line in LINES)

    assert shown(LogFilter()) == 12
    assert shown(LogFilter(least="WARN")) == 8
    assert shown(LogFilter(mac="mini")) == 6
    assert shown(LogFilter(text="LINE 1")) == 3
    assert next_mac(LogFilter(), LINES).mac == "mini"
    assert next_mac(LogFilter(mac="studio"), LINES).mac == ""
    assert filter_words(LogFilter(), 1204) == "INFO and above · all Macs · 1,204 lines"
    assert filter_words(LogFilter(least="ERROR", mac="mini"), 1) == "ERROR · mini · 1 line"


def test_a_long_log_line_goes_on_below() -> None:
    line = LogLine(at=1000.114, level="ERROR", source="mini", text="link lost " + "because " * 12)
    rows = long_lines(line, 76)
    assert ".114 ERROR mini     link lost because" in rows[0]
    assert all(row.startswith(" " * 15 + "↳ because") for row in rows[1:])
    assert max(map(len, rows)) <= 76
    assert sum(row.count("because") for row in rows) == 12


def test_lines_of_two_streams_are_joined_once() -> None:
    now = state.fold(UiState(), Snapshot(logs=LINES[:5]), 1.0)
    now = state.fold(now, LINES[5], 1.0)
    now = state.fold(now, Snapshot(logs=LINES[3:8]), 1.0)
    assert now.logs == LINES[:8]
    assert state.fold(now, RequestStarted(request_id="r", prompt_tokens=1), 1.0).logs == LINES[:8]


async def test_lines_of_other_macs_come_between_those_that_are_shown(tmp_path: Path) -> None:
    dice = random.Random(1)
    lines = [LogLine(at=float(n), level="INFO", source="own", text="word " * dice.choice((1, 60))) for n in range(40)]
    others = [LogLine(at=n + 0.5, level="INFO", source="mini", text=f"{n}") for n in range(40)]
    app = app_with(msgspec.structs.replace(READY, logs=tuple(lines[:9])), tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "5 Chat · m")
        await pilot.press("escape", "4", "enter")
        await sees(pilot, "9 lines")
        view = app.screen.query_one(LogView)
        left = [lines[9:], others]
        while any(left):
            told = dice.choice([each for each in left if each])
            for _ in range(dice.randint(1, 6)):
                app.state = state.fold(app.state, told.pop(0), 1.0) if told else app.state
            view.show(app.state)
            assert list(view.lines) == [row for line in app.state.logs for row in view.rows(line)]
            assert view.count == len(app.state.logs)
        for _ in range(2):  # in one row each, and in all that they need
            await pilot.press("w")
            await until(pilot, lambda: view.is_vertical_scroll_end and view.max_scroll_y > 0)
    assert [line.at for line in app.state.logs] == sorted(line.at for line in app.state.logs)


@pytest.mark.slow
async def test_the_screen_of_the_logs_filters_and_follows(tmp_path: Path) -> None:
    app = app_with(msgspec.structs.replace(READY, logs=LINES), tmp_path)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await sees(pilot, "5 Chat · m")
        await pilot.press("escape", "4", "enter")
        await sees(pilot, "INFO and above · all Macs · 12 lines", "follow ● on", "node.log", "line 11")
        await pilot.press("l", "m", "f")
        await sees(pilot, "WARN and above · mini · 4 lines", "follow ○ off")
        await pilot.press("slash", *"line 1", "enter")
        await sees(pilot, "WARN and above · mini · 1 line", "/ line 1")
        await pilot.press("o")
        assert str(tmp_path / "node.log") in next(n.message for n in app._notifications)
        await pilot.press("escape")
        await sees(pilot, "4 lines")
        await pilot.press("escape")
        assert not isinstance(app.screen, LogsScreen)
