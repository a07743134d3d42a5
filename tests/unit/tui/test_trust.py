"""Texts of the pairing dialog and the trust screen, without a node."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from core.errors import Problem
from core.events import Level, PairingChanged, Parallelism, Peer, Snapshot
from core.requests.trust import TrustedMac, TrustView
from tests.support.screen_events import PLAN
from tui.screens.pairing import about_content, end_content, instruction_content, stranger_content
from tui.screens.trust import cluster_content, mac_content, row_content, title_content
from tui.state.format import TRUST_MARKS, age, fingerprint_short
from tui.state.state import UiState
from tui.state.trust_actions import TRUST_ACTIONS, TrustAction, why_not
from tui.widgets.peer_pane import peers_content
from tui.widgets.status_line import status_content

WIDE_NAME = "北京のスタジオ" * 4
HOSTILE = "[red]x[/] $primary"
KEY = "ab" * 32


Role = Literal["admin", "member", "stranger"]


def trusted(role: Role = "member", *, name: str = "mini", level: Level = "paired", is_self: bool = False) -> TrustedMac:
    short = name[:1] * 26
    return TrustedMac(device_id=short, name=name, level=level, role=role, is_self=is_self, fingerprint=KEY)


ADMIN, MEMBER = trusted("admin", name="studio", is_self=True), trusted()
STRANGER = trusted("stranger", level="unpaired")
VIEW = TrustView(
    level="paired",
    weakest="mini",
    key_storage="keychain",
    epoch=7,
    is_admin=True,
    has_recovery=True,
    macs=(ADMIN, MEMBER),
)


@pytest.mark.parametrize(
    ("view", "mac", "action", "why"),
    [
        (VIEW, MEMBER, "revoke", ""),
        (VIEW, ADMIN, "revoke", "This is the only admin."),
        (VIEW, ADMIN, "admin", "This is the only admin."),
        (VIEW, ADMIN, "rename", ""),
        (VIEW, STRANGER, "revoke", "This Mac isn't a member of the cluster."),
        (VIEW, MEMBER, "decide", "There is only one roster."),
        (msgspec.structs.replace(VIEW, is_admin=False), MEMBER, "revoke", "Only an admin Mac can do this."),
        (msgspec.structs.replace(VIEW, is_admin=False), MEMBER, "rotate", ""),
        (msgspec.structs.replace(VIEW, is_admin=False), MEMBER, "recover", ""),
        (msgspec.structs.replace(VIEW, has_recovery=False), MEMBER, "recover", "No recovery words exist yet."),
        (msgspec.structs.replace(VIEW, epoch=0), MEMBER, "rotate", "This Mac isn't paired with another Mac yet."),
        (msgspec.structs.replace(VIEW, fork=("a", "b")), MEMBER, "revoke", "Choose between the two rosters first (d)."),
        (msgspec.structs.replace(VIEW, fork=("a", "b")), MEMBER, "decide", ""),
    ],
)
def test_who_may_not_change_something_is_told_why(
    view: TrustView, mac: TrustedMac, action: TrustAction, why: str
) -> None:
    assert why_not(view, mac, action) == why


def test_every_action_on_trust_says_whether_it_can_be_done() -> None:
    text = mac_content(msgspec.structs.replace(VIEW, is_admin=False), MEMBER, 60, whole=False).plain
    assert "in tensor    the text" in text, "before a model is loaded so"
    how = Parallelism(choice="tp", strategy="tp", reason="r", group="rdma")
    assert "▲ not encrypted on the cable" in cluster_content(VIEW, replace(PLAN, parallelism=how)).plain
    assert "cable" not in cluster_content(VIEW, PLAN).plain
    rank = msgspec.structs.replace(MEMBER, sees="token ids")
    for mac in (rank, ADMIN, STRANGER):
        assert "as a rank" not in mac_content(VIEW, mac, 60, whole=False).plain
    can, cannot = text.split("Only an admin Mac can do this.")
    assert "Make a new key for this Mac" in can
    assert "Revoke the selected Mac for good" in cannot
    assert len(TRUST_ACTIONS) == len(set(TRUST_ACTIONS))


def test_the_trust_screen_names_the_store_of_the_key_the_weakest_and_a_fork() -> None:
    assert "● in this Mac's keychain" in cluster_content(VIEW).plain
    files = cluster_content(msgspec.structs.replace(VIEW, key_storage="file permissions", has_recovery=False)).plain
    assert "▲ in a file only you can read" in files
    assert "▲ none" in files
    bad = msgspec.structs.replace(trusted(level="blocked"), reason="another key answered where it was looked for")
    weak = msgspec.structs.replace(VIEW, level="blocked", macs=(ADMIN, bad), fork=("a" * 64, "b" * 64), fork_epoch=7)
    text = cluster_content(weak).plain
    assert "✗ mini: another key answered" in text
    assert "✗ Two rosters of epoch 7, aaaaaaaa (this Mac) and bbbbbbbb" in text
    deep = cluster_content(msgspec.structs.replace(weak, fork_epoch=5)).plain
    assert "✗ 2 rosters that differ from epoch 5 on, aaaaaaaa (this Mac) and bbbbbbbb" in deep


@pytest.mark.parametrize("level", ["blocked", "unpaired", "seen", "paired"])
@pytest.mark.parametrize("width", [80, 120])
def test_a_level_is_glyph_and_word_in_header_pane_and_list(level: Level, width: int) -> None:
    mark = TRUST_MARKS[level]
    view = msgspec.structs.replace(VIEW, level=level)
    assert f"{mark.glyph} {mark.word} " in title_content(view, width).plain
    peer = Peer(device_id="m" * 26, name="mini", trust=level)
    pane = peers_content(UiState(snapshot=Snapshot(peers=(peer,))), 46).plain
    assert f"{mark.glyph} {'not paired · press p' if level == 'unpaired' else mark.word}" in pane
    assert ("press p" in pane) is (level in ("unpaired", "seen"))
    assert row_content(trusted(level=level), view.macs, width).plain.startswith(f"{mark.glyph} mini")


@pytest.mark.parametrize("name", [WIDE_NAME, HOSTILE, "x" * 200])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_name_breaks_a_line_or_is_taken_for_markup(name: str, width: int) -> None:
    row = row_content(trusted(name=name), VIEW.macs, width).plain
    assert cell_len(row) == width
    view = msgspec.structs.replace(VIEW, weakest=name)
    assert cell_len(title_content(view, width).plain) <= width
    state = UiState(snapshot=Snapshot(peers=(Peer(device_id="m" * 26, name=name, address="[fe80::1]:4717"),)))
    assert all(cell_len(line) <= max(width, 40) for line in peers_content(state, max(width, 40)).plain.splitlines())
    assert cell_len(stranger_content(state.snapshot.peers[0]).plain) <= 62
    assert status_content(state, width).cell_length <= width
    if name == HOSTILE and width >= 80:
        assert HOSTILE in row


def test_the_pairing_dialog_says_what_to_do_and_how_it_ended() -> None:
    def said(step: PairingChanged, *, typed: bool = False) -> str:
        parts = (
            instruction_content(step, "studio", "mini", 100.0, is_typed=typed),
            about_content(step, UiState()),
            end_content(step, step.problem, attached=True),
        )
        return "\n".join(part.plain for part in parts)

    waiting = said(PairingChanged(state="waiting", peer="mini", address="10.0.0.1:5000", closes_at=175.0))
    assert "◌ waiting · 1:15 left" in waiting
    assert "press p and choose studio" in waiting
    assert "10.0.0.1:5000" in waiting
    step = PairingChanged(
        state="compare", peer="mini", device_id="m" * 26, address="10.0.0.2", fingerprint=KEY, digits="061648"
    )
    assert all(word in said(step) for word in ("◍ compare", "061 648", "mmmmmmmm", "10.0.0.2", fingerprint_short(KEY)))
    assert "Nothing has been shared yet" in said(step)
    assert "Now type these digits on mini" in said(step, typed=True)
    problem = Problem(kind="PairingError", what="The digits differ.", fix="Start again.")
    assert "✗ failed" in said(PairingChanged(state="failed", problem=problem))
    assert "The digits differ.\n→ Start again." in said(PairingChanged(state="failed", problem=problem))
    assert "◆ paired" in said(PairingChanged(state="paired", peer="mini"))
    assert "macluster's service stopped" in end_content(step, None, attached=False).plain


def test_ages_and_fingerprints_are_read_in_groups() -> None:
    assert fingerprint_short(KEY) == "ABAB ABAB ABAB … ABAB"
    assert [age(s) for s in (3, 200, 7200, 90_000, 200_000)] == ["3 s", "3 min", "2 h", "1 day", "2 days"]
