"""Prometheus's figures equal those of the events."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from core.events import HopSample, Peer, PeerSeen, Recovery
from core.models.text.tokenizer import Tokens
from tests.support.answers import ids_of, model, tokens
from tests.support.api import ServedHarness, served_harness
from tests.support.plans import mac_id
from tests.support.waiting import until

__all__ = ["model", "tokens"]  # fixtures


async def figures(harness: ServedHarness) -> dict[tuple[str, ...], float]:
    text = (await harness.asker.get(harness.served.url.replace("/v1", "/metrics"))).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


async def test_what_happened_and_what_is_so_can_be_watched(tmp_path: Path, model: Path, tokens: Tokens) -> None:
    async with served_harness(tmp_path, model) as harness:
        assert (await figures(harness))["macluster_tokens_total",] == 0
        for state in ("hold", "hold", "rebuild", "running", "hold"):
            harness.bus.publish(Recovery(state=state, text="."))
        harness.bus.publish(Recovery(state="running", text=""))
        harness.bus.publish(PeerSeen(peer=Peer(device_id=mac_id(1), name="mini", state="lost")))
        hop = HopSample(
            source=mac_id(0),
            target=mac_id(1),
            frames=4,
            bytes=99,
            compute_s=2.5,
            codec_s=0,
            seal_s=0,
            send_s=0,
            wait_s=0,
            open_s=0,
        )
        harness.bus.publish(hop)
        asking = asyncio.create_task(harness.chat())
        await until(lambda: bool(harness.asked))
        harness.writes(harness.asked[0], ids_of(tokens, "a hop")[:3])
        before = await figures(harness)
        assert before["macluster_rows", "waiting"] == 1
        harness.ends(harness.asked[0])
        await asking
        after = await figures(harness)
        expected = {
            ("macluster_requests_total", "length"): 1,
            ("macluster_tokens_total",): 3,
            ("macluster_prompt_tokens_total",): len(harness.asked[0].tokens),
            ("macluster_first_token_seconds_sum",): 0.25,
            ("macluster_tokens_per_second_count",): 1,
            ("macluster_recoveries_total", "hold"): 2,
            ("macluster_rows", "waiting"): 0,
            ("macluster_queue",): 0,
            ("macluster_macs", "lost"): 1,
            ("macluster_hop_seconds_total", "compute", mac_id(0), "mini"): 2.5,
            ("macluster_hop_frames_total", mac_id(0), "mini"): 4,
        }
        assert {name: after[name] for name in expected} == expected
        async with httpx2.AsyncClient() as keyless:
            assert (await keyless.get(harness.served.url.replace("/v1", "/metrics"))).status_code == 401
