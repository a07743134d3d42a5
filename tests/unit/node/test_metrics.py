"""Prometheus's figures equal those of the events."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from core.events import HopSample, Peer, PeerSeen, Recovery
from core.models.text.tokenizer import Tokens
from tests.support.answers import ids_of, model, tokens
from tests.support.api import ServedDesk, served_desk
from tests.support.plans import mac_id
from tests.support.waiting import until

__all__ = ["model", "tokens"]  # fixtures


async def figures(desk: ServedDesk) -> dict[tuple[str, ...], float]:
    text = (await desk.asker.get(desk.served.url.replace("/v1", "/metrics"))).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


async def test_what_happened_and_what_is_so_can_be_watched(tmp_path: Path, model: Path, tokens: Tokens) -> None:
    async with served_desk(tmp_path, model) as desk:
        assert (await figures(desk))["macluster_tokens_total",] == 0
        for state in ("hold", "hold", "rebuild", "running", "hold"):
            desk.bus.publish(Recovery(state=state, text="."))
        desk.bus.publish(Recovery(state="running", text=""))
        desk.bus.publish(PeerSeen(peer=Peer(device_id=mac_id(1), name="mini", state="lost")))
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
        desk.bus.publish(hop)
        asking = asyncio.create_task(desk.chat())
        await until(lambda: bool(desk.asked))
        desk.writes(desk.asked[0], ids_of(tokens, "a hop")[:3])
        before = await figures(desk)
        assert before["macluster_rows", "waiting"] == 1
        desk.ends(desk.asked[0])
        await asking
        after = await figures(desk)
        expected = {
            ("macluster_requests_total", "length"): 1,
            ("macluster_tokens_total",): 3,
            ("macluster_prompt_tokens_total",): len(desk.asked[0].tokens),
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
            assert (await keyless.get(desk.served.url.replace("/v1", "/metrics"))).status_code == 401
