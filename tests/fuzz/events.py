"""The stream of events to a screen: each event arrives whole and once, whatever its texts and numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.events import (
    AnyEvent,
    HopSample,
    LogLine,
    Peer,
    PeerChanged,
    PeerGone,
    Snapshot,
    TokenEvent,
    decode_event,
    encode_event,
)
from tests.fuzz.target import Target
from tests.support.screen_events import PLAN
from tui.client import stream_of
from tui.screens.peer import peer_content
from tui.state.state import UiState, fold
from tui.widgets.hop_table import hops_content

_NOW = 1000.0
_MOST = (1 << 53) - 1


class _Reply:
    """A stream that arrives in pieces of `size` bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._data), self._size):
            yield self._data[at : at + self._size]


def _came(events: list[AnyEvent], size: int) -> list[AnyEvent]:
    async def read() -> list[AnyEvent]:
        reply: Any = _Reply(b"".join(b"data: " + encode_event(event) + b"\n\n" for event in events), size)
        return [decode_event(said) async for said in stream_of(reply)]

    return asyncio.run(read())


def attack(data: bytes) -> None:
    """Send texts; the first byte chooses the size of the pieces."""
    size, text = 1 + (data[0] if data else 0), data[1:].decode("utf-8", "replace")
    events: list[AnyEvent] = [
        TokenEvent(request_id="r", index=0, token=1, text=text),
        PeerGone(device_id="b" * 26, reason=text),
        LogLine(at=_NOW, level="INFO", source=text[:8], text=text),
    ]
    assert _came(events, size) == events
    state = UiState()
    for event in events:
        state = fold(state, event, _NOW)
    for line in state.snapshot.logs:
        assert len(line.text.splitlines()) <= 1


_SIZE = st.one_of(st.integers(0, _MOST), st.sampled_from([0, 1, _MOST]))
_SECONDS = st.one_of(st.floats(0, 1e9), st.sampled_from([0.0, 5e-324, 1e9]))


@given(st.lists(st.tuples(_SIZE, _SIZE, _SECONDS, _SECONDS), min_size=1, max_size=4))
def shaped(told: list[tuple[int, int, float, float]]) -> None:
    """Draw any numbers that another Mac may report."""
    macs = [Peer(device_id=device_id, name=device_id, is_self=device_id == "A") for device_id in "AB"]
    state = UiState(snapshot=Snapshot(peers=tuple(macs), plan=PLAN, plan_status="ready"), attached=True)
    for at, (one, other, long, short) in enumerate(told):
        peer = Peer(device_id="B", name="b", memory_bytes=one, budget_bytes=other, used_bytes=one, rtt_s=long)
        state = fold(state, PeerChanged(peer=peer), _NOW + at)
        for source, target in ("AB", "BA"):
            hop = HopSample(
                source=source,
                target=target,
                frames=one,
                bytes=other,
                compute_s=long,
                codec_s=short,
                seal_s=long,
                send_s=short,
                wait_s=long,
                open_s=short,
                queue=one,
            )
            state = fold(state, hop, _NOW + at)
        assert hops_content(state, 44, _NOW + at).plain
        assert peer_content(state, peer, None, 60).plain


def target() -> Target:
    """Texts with every kind of line end."""
    seeds = ["plain", "a\u2028b\u2029c\x85d", "\r\n\x0b\x0c\x1c\x1d\x1e", "data: {}\n\ndata: "]
    return Target("events", attack, [b"\x03" + seed.encode() for seed in seeds], shaped)
