"""Texts of the first run, the peers pane, a Mac's details and the check, without a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from core.events import PairingChanged, Peer, Snapshot
from core.requests.checks import Finding
from core.requests.plans import LoadRequest
from core.requests.trust import TrustedMac
from tests.support.screen_events import PLAN
from tui.control.messages import MacAction
from tui.screens.check import check_content, check_text, check_title
from tui.screens.pairing import about_content
from tui.screens.peer import peer_content, peer_title
from tui.state.disabled_reasons import why_not_mac
from tui.state.state import UiState, of_used, skip_turned
from tui.widgets.cluster_strip import strip_content
from tui.widgets.peer_pane import peers_content
from tui.widgets.welcome import is_before_first_answer, is_first_run, welcome_content

WIDTHS = (40, 56, 70, 116)
KEY = "ab" * 32
LONG = "北京のスタジオ[b]" * 4


def mac(name: str, **fields: Any) -> Peer:
    return Peer(device_id=name[:1] * 26, name=name, **fields)


OWN = mac("studio", chip="M2 Ultra", memory_bytes=192_000_000_000, is_self=True, trust="paired", state="connected")
STRANGER = mac("air", address="192.168.1.23:4717")
PAIRED = mac("mbp", trust="paired", state="connected", chip="M3 Max", budget_bytes=100, rtt_s=0.0046)
LOST = mac("cube", trust="paired", state="lost", address="10.0.0.9:4717", problem="10.0.0.9:4717 does not answer.")


def now(*peers: Peer, **fields: Any) -> UiState:
    return UiState(snapshot=Snapshot(peers=(OWN, *peers)), attached=True, **fields)


@pytest.mark.parametrize(
    ("state", "first", "before"),
    [
        pytest.param(now(), True, True, id="alone"),
        pytest.param(now(STRANGER), False, True, id="another-was-there-already"),
        pytest.param(UiState(), False, False, id="no-node-yet"),
        pytest.param(
            UiState(snapshot=Snapshot(peers=(OWN,), plan=PLAN), attached=True), False, False, id="model-loaded"
        ),
    ],
)
def test_only_who_is_alone_and_without_a_model_is_welcomed(state: UiState, first: bool, before: bool) -> None:
    assert is_first_run(state) is first
    assert is_before_first_answer(state) is before


def test_the_steps_are_ticked_as_they_happen() -> None:
    alone = welcome_content(now(), 70, 12.4).plain
    assert "This Mac is ready:  studio · M2 Ultra · 192 GB · id ssssssss" in alone
    assert "0 found in 12 s" in alone
    assert "Nothing found?" in alone
    assert "✓" not in alone
    seen = welcome_content(now(STRANGER), 70, 70).plain
    assert "1 found in 1 min" in seen
    assert "○ air" in seen
    assert "✓ 1  Run" in seen
    assert "✓ 2" not in seen
    assert "Nothing found?" not in seen
    paired = welcome_content(now(PAIRED), 70, 70).plain
    assert "✓ 2  It appears here" in paired
    assert "● paired with mbp" in paired
    assert "3  Press Ctrl+O" in paired
    assert "start alone" in seen
    assert "start alone" not in paired


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_its_room(width: int) -> None:
    named = [msgspec.structs.replace(p, name=LONG) for p in (STRANGER, PAIRED, LOST)]
    state = skip_turned(now(*named), PAIRED.device_id)
    trusted = TrustedMac(device_id="m" * 26, name=LONG, level="paired", role="member", fingerprint="ab" * 32)
    findings = [Finding(name="other Macs", state="warn", what="word " * 40, fix="cure " * 40)]
    texts = [
        peers_content(state, width, PAIRED.device_id),
        peer_title(named[0], width),
        *(peer_content(state, p, trusted, width) for p in named),
        check_title(findings, width, is_running=False),
        check_content(findings, width, is_running=True),
        *([welcome_content(state, width, 5)] if width >= 70 else []),
    ]
    for text in texts:
        assert max(cell_len(line) for line in text.plain.splitlines()) <= max(width, 48), text.plain


@pytest.mark.parametrize("rtt_s", [None, 0.0, 5e-324, 3600.0], ids=str)
@pytest.mark.parametrize("count", [0, 1, (1 << 53) - 1], ids=str)
def test_any_numbers_that_a_mac_may_tell_of_itself_are_drawn(rtt_s: float | None, count: int) -> None:
    sizes = dict.fromkeys(["memory_bytes", "budget_bytes", "used_bytes", "worker_pid", "worker_rss_bytes"], count)
    told = msgspec.structs.replace(PAIRED, rtt_s=rtt_s, **sizes)
    assert peers_content(now(told), 60).plain.splitlines()
    assert peer_content(now(told), told, None, 60).plain.splitlines()
    assert peer_title(told, 60).plain


def test_the_row_says_skipped_why_it_was_not_reached_and_where_the_cursor_is() -> None:
    text = peers_content(skip_turned(now(PAIRED, LOST), PAIRED.device_id), 60, LOST.device_id).plain
    assert "●" in text.splitlines()[3]
    assert "– left out · ◆ paired · ready · mmmmmmmm · 4.6 ms" in text
    assert "✗▸cube" in text
    assert "✗ 10.0.0.9:4717 does not answer." in text
    assert text.count("▸") == 1
    assert "▸" not in peers_content(now(PAIRED), 60).plain


def test_all_that_is_known_of_a_mac_is_told() -> None:
    trusted = TrustedMac(
        device_id="c" * 26, name="cube", level="paired", role="admin", added_epoch=3, fingerprint=KEY, sees="logits"
    )
    lost = msgspec.structs.replace(LOST, also_at=("cube.local:4717",), worker_pid=77, worker_rss_bytes=2_000_000_000)
    text = peer_content(skip_turned(now(lost), lost.device_id), lost, trusted, 100).plain
    for words in ("✗ offline", "◆ paired · admin", "c" * 26, "ABAB ABAB"):
        assert words in text
    for words in (
        "cube.local:4717",
        "does not answer",
        "process         77, 2.0 GB",
        "sees            logits",
        "no model is loaded",
        "Space includes it again",
    ):
        assert words in text
    assert "known once it is paired" in peer_content(now(STRANGER), STRANGER, None, 100).plain
    starting = msgspec.structs.replace(PAIRED, memory_bytes=32_000_000_000, budget_bytes=0)
    assert "32.0 GB · not ready for models yet" in peer_content(now(starting), starting, None, 100).plain


@pytest.mark.parametrize(
    ("peer", "action", "why"),
    [
        pytest.param(PAIRED, "skip", "", id="skip"),
        pytest.param(OWN, "skip", "always holds layers", id="skip-self"),
        pytest.param(STRANGER, "skip", "isn't paired", id="skip-stranger"),
        pytest.param(STRANGER, "forget", "leaves the list", id="forget-stranger"),
        pytest.param(PAIRED, "forget", "", id="forget"),
        pytest.param(None, "add", "", id="add"),
        pytest.param(None, "details", "No Mac is selected.", id="nobody"),
    ],
)
def test_a_key_that_does_nothing_says_why(peer: Peer | None, action: MacAction, why: str) -> None:
    said = why_not_mac(now(STRANGER, PAIRED), peer, f"ask('{action}')")
    assert why in said
    assert bool(said) is bool(why)


def test_who_is_skipped_holds_no_layers_of_any_request() -> None:
    state = skip_turned(skip_turned(now(), "A"), "B")
    assert of_used(state, LoadRequest(model="m", without=("C", "A"))).without == ("C", "A", "B")
    assert of_used(skip_turned(state, "A"), LoadRequest(model="m")).without == ("B",)


def test_the_check_says_glyph_word_and_cure() -> None:
    findings = [
        Finding(name="node", state="ok", what="It listens."),
        Finding(name="multicast", state="bad", what="Refused.", fix="Allow it."),
        Finding(name="firewall", state="unknown", what="Not here."),
    ]
    assert "✗ 1 problem" in check_title(findings, 80, is_running=False).plain
    assert "◌ checking" in check_title([], 80, is_running=True).plain
    assert "✓ no problems" in check_title(findings[:1], 80, is_running=False).plain
    text = check_text(findings)
    assert "✓ ok" in text
    assert "✗ problem   multicast     Refused." in text
    assert "→ Allow it." in text
    assert "– unknown" in text


def test_the_other_key_is_shown_whole_if_asked() -> None:
    step = PairingChanged(state="compare", peer="air", device_id="a" * 26, address="h:1", fingerprint="ab" * 32)
    assert "… ABAB  (f: all)" in about_content(step, UiState()).plain
    assert about_content(step, UiState(), whole=True).plain.count("ABAB") == 16


def test_the_strip_names_own_macs_before_strangers() -> None:
    macs = strip_content(now(STRANGER, PAIRED), 80, 0.0).plain.splitlines()[1]
    assert macs.index("studio") < macs.index("mbp") < macs.index("air")
