"""The settings of config.toml, remembered choices, and the app's use of both."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from core.events import Snapshot
from core.settings import Home
from tests.support.app import StillNode
from tui.app import MaclusterApp
from tui.cli.launch import node_options
from tui.control import preferences
from tui.control.plain_glyphs import ASCII
from tui.control.preferences import Preferences
from tui.control.theme_choice import config_complaints, theme_of
from tui.control.themes import DARK, OWN_THEMES
from tui.screens.help import HelpScreen


def read(folder: Path, text: str) -> Preferences:
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return preferences.read(file, folder / "tui.json")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param('[keys]\nmodel = "f5"', "line 2: Unknown action 'model'. Did you mean 'models'?", id="unknown"),
        pytest.param('[keys]\nmodels = "ctrl+m"', "line 2: A terminal can't tell Ctrl+M from Enter", id="enter"),
        pytest.param('[keys]\nmodels = "ctrl+["', "can't tell Ctrl+[ from Esc", id="escape"),
        pytest.param('[keys]\nmodels = "alt+x"', "Not every terminal sends Alt+X", id="alt"),
        pytest.param('[keys]\nmodels = "shift+enter"', "Not every terminal sends Shift+Enter", id="shift-enter"),
        pytest.param('[keys]\nmodels = "hyperspace"', "Unknown key 'hyperspace'", id="no-key"),
        pytest.param("[keys]\nmodels = 5", "models needs its keys in quotes", id="number"),
        pytest.param('[keys]\nmodels = ""', "models needs its keys in quotes", id="empty"),
        pytest.param('[keys]\n\nmodels = "f1"', "line 3: F1 is already the key of 'help'", id="clash"),
        pytest.param('[keys]\nlog-level = "f"', "f is already the key of 'log-follow'", id="clash-in-a-pane"),
        pytest.param('[tui]\ncolour = "x"', "line 2: unknown setting 'colour' in [tui]", id="unknown-setting"),
        pytest.param('[tui]\nplain = "yes"', "line 2: plain must be true or false", id="kind"),
        pytest.param("[look]\nx = 1", "line 1: unknown section [look]", id="unknown-table"),
        pytest.param("[keys\n", "config.toml can't be read: ", id="no-toml"),
    ],
)
def test_what_cannot_be_followed_is_told_and_the_rest_works(tmp_path: Path, text: str, complaint: str) -> None:
    found = read(tmp_path, text)
    assert len(found.complaints) == 1
    assert complaint in found.complaints[0]
    assert not found.keys
    if "[keys" not in text:
        more = read(tmp_path, f'{text}\n[keys]\nzoom = "f12"')
        assert more.keys == {"mc.zoom": "f12"}


def test_keys_may_change_places(tmp_path: Path) -> None:
    found = read(tmp_path, '[keys]\npair = "t"\ntrust = "p"\nmodels = "ctrl+k, /"')
    assert found.complaints == ()
    assert found.keys == {"mc.pair": "t", "mc.trust": "p", "mc.models": "ctrl+k,slash"}


def test_the_file_is_found_where_the_desktop_rules_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert preferences.config_file() == tmp_path / "macluster" / "config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    assert preferences.config_file() == Path.home() / ".config" / "macluster" / "config.toml"
    assert preferences.read(tmp_path / "none", tmp_path / "none.json") == Preferences()


def test_a_theme_is_remembered_unless_the_file_names_one(tmp_path: Path) -> None:
    memory = Home(tmp_path).theme
    preferences.remember_theme(memory, "nord")
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["tui.json"]
    known = {"nord", "dracula", DARK.name}
    assert theme_of(read(tmp_path, "[tui]\nslow_link = true"), known) == "nord"
    assert theme_of(read(tmp_path, '[tui]\ntheme = "dracula"'), known) == "dracula"
    wrong = read(tmp_path, '[tui]\ntheme = "pink"')
    assert theme_of(wrong, known) == "nord"
    assert config_complaints(wrong, known) == ("Unknown theme 'pink'. The palette lists all themes.",)
    memory.write_text('{"format": 1, "content": 5}')
    assert theme_of(read(tmp_path, ""), known) == DARK.name


def test_a_slow_way_to_the_terminal_is_spared() -> None:
    assert Preferences().frames_per_s({}) == 30
    assert Preferences().frames_per_s({"SSH_CONNECTION": "1"}) == 15
    assert Preferences(slow_link=True).frames_per_s({"SSH_CONNECTION": "1"}) == 5


def app_with(folder: Path, found: Preferences) -> MaclusterApp:
    return MaclusterApp(StillNode(Snapshot()), folder=folder, preferences=found)  # type: ignore[arg-type]


async def test_other_keys_work_and_the_footer_and_the_help_say_so(tmp_path: Path) -> None:
    app = app_with(tmp_path, read(tmp_path, '[keys]\nhelp = "f12"\nfoo = "x"'))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.pause()
        assert any("Unknown action 'foo'" in note.message for note in app._notifications)
        await pilot.press("f1")
        assert not isinstance(app.screen, HelpScreen)
        await pilot.press("f12")
        assert isinstance(app.screen, HelpScreen)
        assert "F12 Help" in "\n".join(s.text for s in app.screen_stack[0]._compositor.render_strips())


async def test_a_theme_that_is_chosen_is_remembered(tmp_path: Path) -> None:
    app = app_with(tmp_path, Preferences())
    async with app.run_test(size=(80, 24)) as pilot:
        for app.theme in ("ansi-dark", "ansi-light", OWN_THEMES[1].name):
            await pilot.pause()
        while preferences._remembered(Home(tmp_path).theme) != OWN_THEMES[1].name:
            await pilot.pause(0.01)


async def test_plain_draws_ascii_without_frames_one_below_the_other_and_nothing_moves(tmp_path: Path) -> None:
    app = app_with(tmp_path, Preferences(plain=True))
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        text = "\n".join(s.text for s in app.screen._compositor.render_strips())
        assert app.animation_level == "none"
    assert text.isascii(), {c for c in text if not c.isascii()}
    assert not set("|+") & set(text.replace("Ctrl+", "")), "a frame"
    assert "Ctrl+P Palette" in text
    assert "^" not in text
    assert all(plain.isascii() and len(plain) == 1 for plain in ASCII.values())


def test_a_node_keeps_no_spare_worker_where_the_file_says_so(tmp_path: Path) -> None:
    assert node_options(read(tmp_path, "")) == []
    assert node_options(read(tmp_path, "[node]\nspare_worker = false")) == ["--no-spare-worker"]
    assert node_options(read(tmp_path, "[node]\nserve = true\nrelay = false")) == ["--no-relay", "--serve"]
    assert node_options(read(tmp_path, "[node]\nallow_load = true")) == ["--allow-load"]
    assert node_options(read(tmp_path, '[node]\nawake = "always"')) == ["--awake", "always"]
    (complaint,) = read(tmp_path, "[node]\nspare_worker = 3").complaints
    assert "spare_worker must be true or false" in complaint
    (complaint,) = read(tmp_path, "[node]\nawake = true").complaints
    assert 'awake must be one of "loaded", "always", "never"' in complaint
