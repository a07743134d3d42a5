"""Keys and colours of real Macs: keyboards whose F keys need fn, and a Terminal with 256 colours."""

from __future__ import annotations

from itertools import combinations

import pytest
from rich.color import Color, ColorSystem
from textual.theme import Theme

from tui.control.actions import bindings, in_order, is_f_key
from tui.control.keymap import EVERYTHING, TABLES
from tui.control.themes import OWN_THEMES

PLAIN = ("primary", "secondary", "accent", "warning", "error", "success", "foreground", "background", "panel")


def test_no_action_has_an_f_key_alone_and_no_table_a_key_twice() -> None:
    keys = {action.id: action.keys.split(",") for action in EVERYTHING if action.keys}
    assert [name for name, those in keys.items() if all(map(is_f_key, those))] == []
    for table in TABLES:
        taken = [key for action in table for key in action.keys.split(",") if key]
        assert len(taken) == len(set(taken)), table[0].id


@pytest.mark.parametrize(
    ("keys", "mac", "elsewhere"),
    [
        pytest.param("f4,L", ["L", "f4"], ["f4", "L"], id="two"),
        pytest.param("escape,f1", ["escape", "f1"], ["escape", "f1"], id="last anyway"),
        pytest.param("f,f6", ["f", "f6"], ["f", "f6"], id="a letter"),
        pytest.param("f2,z,f3", ["z", "f2", "f3"], ["f2", "z", "f3"], id="three"),
    ],
)
def test_on_a_mac_f_keys_come_last(keys: str, mac: list[str], elsewhere: list[str]) -> None:
    assert in_order(keys, "darwin") == mac
    assert in_order(keys, "linux") == elsewhere


def test_on_a_mac_the_first_key_of_nothing_is_an_f_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.control.actions.sys.platform", "darwin")
    first: dict[str, str] = {}
    for made in bindings(EVERYTHING):
        first.setdefault(made.id or "", made.key)
    assert not any(map(is_f_key, first.values()))


@pytest.mark.parametrize("theme", [pytest.param(theme, id=theme.name) for theme in OWN_THEMES])
def test_colours_that_differ_still_do_where_there_are_256(theme: Theme) -> None:
    """A name and its text variant may look the same: "error" and "text-error"."""
    colours = {name: getattr(theme, name) for name in PLAIN}
    colours |= {name: value for name, value in theme.variables.items() if "%" not in value}
    seen = {name: Color.parse(value).downgrade(ColorSystem.EIGHT_BIT).number for name, value in colours.items()}
    alike = [
        (one, other)
        for one, other in combinations(colours, 2)
        if seen[one] == seen[other] and colours[one] != colours[other] and one != other.removeprefix("text-")
    ]
    assert alike == []


def test_t_is_trust_and_capital_t_is_topology_on_every_screen() -> None:
    meant = {key: {a.word for a in EVERYTHING if key in a.keys.split(",")} for key in ("t", "T")}
    assert meant == {"t": {"Trust"}, "T": {"Topology"}}
