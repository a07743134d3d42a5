"""A new word of an answer, or a change of one of a hundred Macs, redraws only a little."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from textual.content import Content

from core.events import Peer, PeerChanged, Snapshot, TokenEvent
from tests.support.app import app_with, text_of
from tests.support.screen_events import PLAN
from tests.support.waiting import until
from tui.app import MaclusterApp
from tui.state import conversation, state
from tui.state.state import UiState
from tui.widgets import peer_pane
from tui.widgets.chat_log import ChatLog
from tui.widgets.markdown_chunks import PARAGRAPH
from tui.widgets.peer_pane import peers_content, peers_in_sight
from tui.widgets.text_view import TextView

MACS = tuple(Peer(device_id=f"{n:026}", name=f"mac{n}", trust="paired", state="connected") for n in range(100))
CROWD = Snapshot(peers=(msgspec.structs.replace(MACS[0], is_self=True), *MACS[1:]), plan=PLAN, plan_status="ready")
LINES = 200
KINDS = {
    "paragraph": ["It has many words, and some of them are longer. "] * LINES,
    "table": ["| key | does |\n", "|---|---|\n", *(f"| `k{n}` | what it does, at length |\n" for n in range(LINES))],
    "list": [f"- item {n} of a list that goes on\n" for n in range(LINES)],
    "code": ["```python\n", *(f"value_{n} = other_{n} + {n}  # and so on\n" for n in range(LINES))],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_word_draws_the_end_of_an_answer_alone_however_long_it_is(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    update = TextView.update

    def note(view: TextView, content: Any = "", **how: Any) -> None:
        if isinstance(view.parent, ChatLog):
            drawn.append(len(content.plain) if isinstance(content, Content) else 0)
        update(view, content, **how)

    monkeypatch.setattr(TextView, "update", note)
    now = conversation.accepted(conversation.sent(UiState(snapshot=CROWD, attached=True), "?", 1.0), "r", 1, 1.0)
    app = app_with(CROWD)
    async with app.run_test(size=(120, 36)) as pilot:
        chat = app.dashboard.chat
        for number, text in enumerate(KINDS[kind]):
            now = state.fold(now, TokenEvent(request_id="r", index=number, token=1, text=text), 2.0)
            app.state = now
            chat.show(now)
            drawn.clear()
            await chat._flush()
            assert sum(drawn) < 1.2 * PARAGRAPH
            assert len(drawn) <= 4  # its head, its end, the start of the next block, its figures
        await pilot.pause()
        assert len(chat.children) > 4, "and it is in pieces"


def sees(app: MaclusterApp, word: str) -> bool:
    return word in text_of(app)


@pytest.mark.slow
async def test_of_a_hundred_macs_those_in_sight_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    line = peer_pane._peer_line

    def note(peer: Peer, *how: Any, **more: Any) -> Content:
        drawn.append(peer.name)
        return line(peer, *how, **more)

    monkeypatch.setattr(peer_pane, "_peer_line", note)
    app = app_with(CROWD)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(lambda: sees(app, "5 Chat · m"))
        await pilot.press("escape", "1")
        await until(lambda: sees(app, "▸mac0"))
        drawn.clear()
        app.set_state(state.fold(app.state, PeerChanged(peer=msgspec.structs.replace(MACS[2], rtt_s=0.25)), 1.0))
        await until(lambda: sees(app, "250 ms"))
        assert 0 < len(drawn) <= 2 * 8
        await pilot.press("G")
        await until(lambda: sees(app, "▸mac99"))
        await pilot.press("g")
        await until(lambda: sees(app, "▸mac0"))


def test_what_is_not_seen_is_left_out_and_keeps_its_place() -> None:
    told = msgspec.structs.replace(
        CROWD, peers=(*MACS[:50], msgspec.structs.replace(MACS[50], problem="?"), *MACS[51:])
    )
    now = UiState(snapshot=told)
    whole = peers_content(now, 60).plain.splitlines()
    for seen in (range(12), range(95, 107), range(190, 202)):
        _, body, more, above, below = peers_in_sight(now, 60, "", seen)
        lines = body.plain.splitlines()
        assert above + len(lines) + below == len(whole)
        assert lines == whole[above : above + len(lines)]
        assert above <= seen.start
        assert above + len(lines) >= min(seen.stop, len(whole))
        assert len(lines) <= len(seen) + 4
        hidden = sum(peer.name in line.split()[:2] for peer in told.peers for line in whole[len(whole) - below :])
        assert more == (f" · {hidden} more below" if hidden else "")
