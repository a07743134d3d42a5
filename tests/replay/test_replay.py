"""A session of an agent with helpers reads little more than its new tokens."""

from __future__ import annotations

from pathlib import Path

from tests.replay.recording import FOLDER, rounds_of
from tests.replay.replay import longest, over_a_simulated_ring, tokenizer_in


def test_an_agent_and_its_helpers_are_read_once(tmp_path: Path) -> None:
    """The context has room for the agent, for one of its two helpers, and little more; each answer may fill it."""
    rounds = rounds_of(FOLDER / "opencode.json", tokenizer_in(tmp_path))
    assert max(map(len, rounds)) == 2, "helpers that come at the same time"
    done = over_a_simulated_ring(rounds, 2 * longest(rounds))
    assert done.ratio <= 1.1


def test_the_next_request_of_codex_reads_only_what_is_new(tmp_path: Path) -> None:
    rounds = rounds_of(FOLDER / "codex.json", tokenizer_in(tmp_path))
    assert [len(prompts) for prompts in rounds] == [1, 1]
    assert over_a_simulated_ring(rounds, 2 * longest(rounds)).ratio <= 1.01
