"""Prometheus metrics, from the node's events and its snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from core.events import AnyEvent, HopSample, PeerState, Recovery, RequestDone, Snapshot, TokenEvent
from core.node.base.bus import Bus
from core.node.public_api.request_queue import RequestQueue

_FIRST_TOKEN_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TOKENS_PER_S: Final = (1, 2, 5, 10, 20, 30, 50, 75, 100, 200, 400)
_HOP_PARTS: Final = ("compute_s", "codec_s", "seal_s", "send_s", "wait_s", "open_s", "wire_s")


class Metrics:
    """Counts events while `watch` runs; gauges are read from the snapshot when scraped."""

    def __init__(self, bus: Bus, line: RequestQueue) -> None:
        self._bus = bus
        self._state = "running"
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("macluster_requests", "Answers that ended.", ["reason"], registry=registry)
        self._prompt = Counter("macluster_prompt_tokens", "Prompt tokens of answers that ended.", registry=registry)
        self._reused = Counter("macluster_reused_tokens", "Prompt tokens that were cached.", registry=registry)
        self._tokens = Counter("macluster_tokens", "Tokens generated.", registry=registry)
        first = "Seconds from admission to the first token."
        self._first = Histogram("macluster_first_token_seconds", first, registry=registry, buckets=_FIRST_TOKEN_S)
        rate = "Decode tokens per second of an answer."
        self._rate = Histogram("macluster_tokens_per_second", rate, registry=registry, buckets=_TOKENS_PER_S)
        turns = "Recovery states entered."
        self._recoveries = Counter("macluster_recoveries", turns, ["state"], registry=registry)
        registry.register(_Now(bus, line))

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/metrics", self._show)]

    async def watch(self) -> None:
        async for event in self._bus.follow():
            self.take(event)

    def take(self, event: AnyEvent) -> None:
        match event:
            case TokenEvent():
                self._tokens.inc()
            case RequestDone():
                self._requests.labels(event.finish_reason).inc()
                self._prompt.inc(event.prompt_tokens)
                self._reused.inc(event.reused_tokens)
                if event.ttft_s is not None:
                    self._first.observe(event.ttft_s)
                if event.decode_tokens_per_s is not None:
                    self._rate.observe(event.decode_tokens_per_s)
            case Recovery(state=state) if state != self._state:
                self._state = state
                self._recoveries.labels(state).inc()

    async def _show(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Now(Collector):
    """Gauges of the current snapshot."""

    def __init__(self, bus: Bus, line: RequestQueue) -> None:
        self._bus, self._line = bus, line

    def collect(self) -> Iterator[Metric]:
        now = self._bus.now
        waiting = GaugeMetricFamily("macluster_queue", "API requests that wait for a row.")
        waiting.add_metric([], len(self._line))
        yield waiting
        rows = GaugeMetricFamily("macluster_rows", "Answers in progress.", labels=["state"])
        for state in ("waiting", "reading", "writing"):
            rows.add_metric([state], sum(row.state == state for row in now.batch.rows))
        yield rows
        macs = GaugeMetricFamily("macluster_macs", "Known Macs.", labels=["state"])
        for known in get_args(PeerState):
            macs.add_metric([known], sum(peer.state == known for peer in now.peers))
        yield macs
        plan = GaugeMetricFamily("macluster_plan", "1 for the current plan.", labels=["model", "topology", "status"])
        if now.plan:
            plan.add_metric([now.plan.name, now.plan.topology, now.plan_status], 1)
        yield plan
        yield from _hops(now)


def _hops(now: Snapshot) -> Iterator[Metric]:
    """Sums since the ring was last idle; they restart at zero, as a counter may."""
    names = {peer.device_id: peer.name for peer in now.peers}

    def ends(hop: HopSample) -> list[str]:
        return [names.get(device_id, device_id) for device_id in (hop.source, hop.target)]

    both = ["source", "target"]
    seconds = CounterMetricFamily("macluster_hop_seconds", "Seconds spent on a hop.", labels=[*both, "part"])
    frames = CounterMetricFamily("macluster_hop_frames", "Frames sent over a hop.", labels=both)
    carried = CounterMetricFamily("macluster_hop_bytes", "Bytes sent over a hop.", labels=both)
    trip = GaugeMetricFamily("macluster_hop_rtt_seconds", "Round trip time of a hop.", labels=both)
    for hop in now.hops:
        for part in _HOP_PARTS:
            seconds.add_metric([*ends(hop), part.removesuffix("_s")], getattr(hop, part))
        frames.add_metric(ends(hop), hop.frames)
        carried.add_metric(ends(hop), hop.bytes)
        if hop.rtt_s is not None:
            trip.add_metric(ends(hop), hop.rtt_s)
    yield from (seconds, frames, carried, trip)
