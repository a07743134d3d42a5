"""Answers over real nodes and workers equal those of mlx-lm in one process, token for token."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.settings import PREFILL_CHUNK
from tests.support.cluster import Make, ask, reference, running_demo

PROMPTS = ["Hello there, how are you?", "which layers does a stage hold " * 36]
BUDGETS = (64.0, 32.0, 16.0, 24.0)
TOKENS = 32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "options", "macs"),
    [
        ("llama", {"bits": 4}, 1),
        pytest.param("gemma4_text", {}, 2, marks=pytest.mark.nightly),
        ("gpt_oss", {}, 3),
        pytest.param("deepseek_v3", {}, 4, marks=pytest.mark.nightly),
    ],
)
async def test_a_split_model_gives_the_tokens_of_mlx_lm(
    made: Make, family: str, options: dict[str, int], macs: int
) -> None:
    model = made(family, **options)
    expected = reference(model, PROMPTS, TOKENS)
    assert all(len(tokens) == TOKENS for tokens in expected)
    assert len(set(expected[0])) >= TOKENS // 2, "a reference that repeats one token proves nothing"
    async with running_demo(model, BUDGETS[:macs]) as demo:
        answers = [await ask(demo.head, prompt, TOKENS) for prompt in PROMPTS]
    assert max(a.done.prompt_tokens for a in answers) > PREFILL_CHUNK
    assert [a.tokens for a in answers] == expected


def test_the_demo_command_prints_one_object(made: Make) -> None:
    model = made("llama")
    (expected,) = reference(model, [PROMPTS[0]], 24)
    facts = demo_json(model, "--prompt", PROMPTS[0], "--max-tokens", "24", "--memory", "64,32,16")
    assert facts["tokens"] == expected
    assert facts["finish_reason"] == "length"
    assert [(s["peer"], s["start"], s["stop"]) for s in facts["plan"]["stages"]] == [
        ("studio", 0, 5),
        ("mbp", 5, 7),
        ("mini", 7, 8),
    ]
    assert facts["plan"]["topology"] == "private"
    assert facts["plan"]["output"] == "studio"
    assert [(h["from"], h["to"]) for h in facts["hops"]] == [("studio", "mbp"), ("mbp", "mini"), ("mini", "studio")]
    assert all(h["frames"] > 24 and h["bytes"] > 0 and h["compute_s"] > 0 for h in facts["hops"])
    assert facts["trust"]["level"] == "paired"
    assert len({w["pid"] for w in facts["workers"]}) == 3


def test_quantised_caches_give_the_tokens_of_mlx_lm(made: Make) -> None:
    model = made("qwen3", head_dim=64)
    (expected,) = reference(model, [PROMPTS[0]], 24, kv_bits=4)
    assert len(set(expected)) >= 12
    facts = demo_json(model, "--prompt", PROMPTS[0], "--max-tokens", "24", "--memory", "64,32", "--kv-bits", "4")
    assert facts["tokens"] == expected
    assert facts["tokens"] != reference(model, [PROMPTS[0]], 24)[0]
    assert not facts["plan"]["batched"]


def test_only_the_heads_disk_has_the_model_and_the_others_fetch_their_part(made: Make) -> None:
    model = made("llama", layers=6, hidden=384, intermediate=2048)
    (expected,) = reference(model, [PROMPTS[0]], 24)
    options = ("--macs", "3", "--memory", "32", "--weights", "remote", "--prompt", PROMPTS[0], "--max-tokens", "24")
    facts = demo_json(model, *options)
    assert facts["tokens"] == expected
    head, *others = facts["workers"]
    whole = sum(file.stat().st_size for file in model.iterdir())
    assert (head["fetched_bytes"], head["disk_bytes"] >= whole) == (0, True)
    for worker in others:
        assert 0.2 * whole < worker["fetched_bytes"] < 0.45 * whole
        assert 0.2 * whole < worker["disk_bytes"] < 0.45 * whole


@pytest.mark.slow
def test_a_worker_holds_its_slice_and_little_more(made: Make) -> None:
    model = made("llama", hidden=1024, intermediate=2560, layers=4, heads=8, kv_heads=8, head_dim=128)
    facts = demo_json(model, "--prompt", "hello", "--max-tokens", "4", "--memory", "8,7")
    weights = sum(w["weight_bytes"] for w in facts["workers"])
    assert weights >= 175_000_000
    for worker in facts["workers"]:
        assert worker["rss_bytes"] <= 1.1 * worker["weight_bytes"] + 125 * 1024 * 1024, worker


def demo_json(model: Path, *options: str) -> Any:
    command = [
        sys.executable,
        "-m",
        "tui.cli.main",
        "demo",
        "--model",
        str(model),
        "--json",
        "--no-multicast",
        *options,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
