from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.link.frames import FrameType
from core.link.liveness import BEAT_S
from core.node.peers.message_budget import FREE, OTHERS, RATES, MessageBudget

KINDS = st.sampled_from(FrameType)


@given(st.lists(st.tuples(KINDS, st.floats(0, 3)), max_size=200))
def test_who_waits_as_told_never_says_more_than_his_rate(said: list[tuple[FrameType, float]]) -> None:
    budget, now, counts = MessageBudget(), 100.0, dict.fromkeys(FrameType, 0)
    for kind, idle_s in said:
        now += idle_s
        now += budget.spend(kind, now)
        counts[kind] += 1
        rate = RATES.get(kind, OTHERS)
        assert kind in FREE or counts[kind] <= rate.burst + (now - 100.0) * rate.per_s + 1e-6


def test_who_floods_waits_and_who_beats_as_he_should_never_does() -> None:
    flood, beats = MessageBudget(), MessageBudget()
    assert sum(flood.spend(FrameType.PING, 0.0) for _ in range(41)) > 0
    for beat in range(10_000):
        for kind in (FrameType.PING, FrameType.PONG, FrameType.ROSTER):
            assert beats.spend(kind, beat * BEAT_S) == 0
