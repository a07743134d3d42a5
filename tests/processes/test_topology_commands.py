"""A person chooses a topology by its name or by who has which layers; the answer stays that of one process."""

from __future__ import annotations

import json
from typing import Any

from tests.support.cluster import Make, reference, running_demo
from tests.support.command import macluster

PROMPT = "a hop is"


async def test_run_loads_anew_only_for_another_ring_than_the_one_that_was_asked_for(made: Make) -> None:
    model = made("llama")
    (expected,) = reference(model, [PROMPT], 24)
    assert len(set(expected)) >= 12, "a reference that repeats one token proves nothing"
    async with running_demo(model, (64, 32, 16)) as demo:

        async def run(*how: str) -> dict[str, Any]:
            ran = await macluster(demo.home.root, "run", str(model), "-p", PROMPT, "--max-tokens", "24", "--json", *how)
            assert ran.returncode == 0, ran.stderr
            told: dict[str, Any] = json.loads(ran.stdout)
            assert told["tokens"] == expected
            return told

        def generation() -> int:
            assert demo.head.now.plan
            return demo.head.now.plan.plan_gen

        async def seen() -> list[str]:
            view = json.loads((await macluster(demo.home.root, "trust", "list", "--json")).stdout)
            return [mac["sees"] for mac in view["macs"]]

        private, workers = generation(), [mac.worker_pid for mac in demo.head.now.peers]
        forward = await run("--topology", "forward")
        assert (forward["plan"]["topology"], forward["plan"]["output"]) == ("forward", "mini")
        back = next(h for h in forward["hops"] if (h["from"], h["to"]) == ("mini", "studio"))
        assert back["bytes"] < min(h["bytes"] for h in forward["hops"] if h is not back) / 2
        assert await seen() == ["token ids", "hidden states of layers 5–6", "token ids, logits"]
        first = generation()
        assert first > private
        assert (
            (await run())["plan"]["topology"] == (await run("--topology", "forward"))["plan"]["topology"] == "forward"
        )
        assert generation() == first
        given = ("--layers", "6:output,2:5,0:1")
        reverse = await run(*given)
        assert reverse["plan"]["topology"] == "reverse"
        assert [(s["peer"], s["start"], s["stop"]) for s in reverse["plan"]["stages"]] == [
            ("studio", 6, 8),
            ("mini", 0, 2),
            ("mbp", 2, 6),
        ]
        assert await seen() == ["token ids, logits", "hidden states of layers 2–5", "token ids"]
        assert [mac.worker_pid for mac in demo.head.now.peers] == workers, "what stays with a Mac stays in memory"
        second = generation()
        await run(*given)
        assert generation() == second
        assert (await run("--topology", "single"))["hops"] == []
        assert await seen() == ["token ids, logits", "", ""]
        refused = await macluster(demo.home.root, "load", str(model), "--layers", "0:1,3:5,6:output")
        assert (refused.returncode, "No Mac has layer 2." in refused.stderr) == (2, True)
