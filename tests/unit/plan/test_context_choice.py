"""The default context: by memory, without another Mac, with the reason in the plan."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from core.events import Plan
from core.models.files.cache_size import CacheSize
from core.plan.context_choice import FOR_AGENTS, MARGIN, choose_context
from core.plan.make_plan import make_plan
from core.settings import DEFAULT_CONTEXT, GB
from tests.support.planning import FLAT, peer

K = 1024


# 15 GB of weights, and 1 GB of KV for 16,384 tokens
GROWING = replace(FLAT, caches=(CacheSize(bytes_per_token=GB // 10 // (16 * K)),) * 10)


def planned(*budgets: int, longest: int = 1 << 20, context: int | None = None) -> Plan:
    macs = [peer("abcd"[n], budget) for n, budget in enumerate(budgets)]
    return make_plan(
        model="m", fingerprint="f", layout=GROWING, peers=macs, plan_gen=1, context=context, longest=longest
    )


@pytest.mark.parametrize(
    ("budgets", "longest", "context", "why"),
    [
        ((200,), 128 * K, 128 * K, "as much as the model takes"),
        ((200,), 40_960, 32 * K, "as much as the model takes"),
        ((200,), 2000, 2000, "as much as the model takes"),
        ((21,), 1 << 20, 64 * K, "since twice as much does not fit"),
        ((30,), 1 << 20, 128 * K, "since twice as much does not fit"),
        ((35,), 1 << 20, 128 * K, "since twice as much leaves less than 10% of the memory free"),
        ((28, 28), 1 << 20, 128 * K, "since twice as much needs another Mac"),
        ((16, 16), 1 << 20, 64 * K, "since twice as much needs another Mac"),
        ((17,), 1 << 20, 16 * K, "since twice as much does not fit"),
    ],
)
def test_a_context_is_as_long_as_memory_allows(budgets: tuple[int, ...], longest: int, context: int, why: str) -> None:
    plan = planned(*budgets, longest=longest)
    assert (plan.context, plan.notes[-1]) == (context, f"Context: {context:,} tokens, {why}.")


def test_a_chosen_context_stays_and_one_beyond_the_model_is_noted() -> None:
    assert planned(200, context=5000).context == 5000
    assert not planned(200, context=5000).notes
    assert planned(200, context=5000, longest=4096).notes[-1] == "Context: 5,000 tokens, but the model takes 4,096."


@given(
    longest=st.integers(1, 1 << 24),
    weights=st.integers(0, 60),
    per_step=st.floats(0.001, 40),
    budgets=st.lists(st.integers(1, 64), min_size=1, max_size=4),
)
def test_no_context_needs_another_mac_beyond_what_agents_need(
    longest: int, weights: int, per_step: float, budgets: list[int]
) -> None:
    def macs_for(context: int, free: float) -> int:
        need = weights + per_step * context / DEFAULT_CONTEXT
        held = [sum(budgets[: n + 1]) * (1 - free) for n in range(len(budgets))]
        return next((n for n, bytes_held in enumerate(held, 1) if bytes_held >= need), 0)

    tokens, why = choose_context(longest, macs_for)
    assert tokens == longest < DEFAULT_CONTEXT or (tokens & (tokens - 1) == 0 and DEFAULT_CONTEXT <= tokens <= longest)
    fewest = macs_for(min(DEFAULT_CONTEXT, longest), 0)
    if tokens > FOR_AGENTS:
        assert 0 < macs_for(tokens, MARGIN) <= fewest
    if 2 * tokens <= longest and tokens >= DEFAULT_CONTEXT:
        assert not 0 < macs_for(2 * tokens, MARGIN) <= fewest
        assert 2 * tokens > FOR_AGENTS or not macs_for(2 * tokens, 0)
        assert "twice as much" in why
    else:
        assert why.endswith("as much as the model takes.")
