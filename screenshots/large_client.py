"""A real demo, shown as if its Macs held the large model.

The node's texts about the demo model are changed to a model of 70 billion parameters, and times to those the node
expects of such Macs. That model never ran for the pictures: the node computes its plan, bytes and speed from its
headers and the Macs' chips. The text of the answers is the demo model's.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from core.demo import DEMO_MODEL
from core.events import (
    AnyEvent,
    HopSample,
    Peer,
    PeerChanged,
    PeerSeen,
    Plan,
    PlanAdvice,
    PlanLoaded,
    PlanProposed,
    Recovery,
    RequestDone,
    RequestStarted,
    Snapshot,
    StageState,
    TokenEvent,
)
from core.plan.chip_bandwidth import memory_bytes_per_s
from core.plan.forecast import EFFICIENCY, PROMPT_GAIN, PROMPT_TOKENS
from core.requests.body import Body
from core.requests.plans import Forecast, ModelChoice, PlanPreview, PlanRequest, PreviewRequest
from core.requests.trust import TrustView
from core.settings import GB, Home
from screenshots import large_model
from screenshots.recording import RecordingClient
from tui.cli.what_if import imagined_plan
from tui.client import ANSWER_S

_SMALL: Final = DEMO_MODEL.name
_SYSTEM_BYTES: Final = 3 * GB  # a Mac's memory use besides a model
_KV_BYTES_A_TOKEN: Final = 327_680
# a frame on a cable between two Macs; the simulated ones share one processor and wait for it
_HOP_S: Final = 0.0012
_SEND_S: Final = 0.0005
_RTT_S: Final = 0.0014
_LOST_PART: Final = 0.13  # of the model, on the smallest Mac
_BUDGETS_GB: Final = {"studio": 64, "mbp": 32}  # of the Macs that are short of memory
_SHORT: Final = re.compile(rf"{_SMALL} needs [^)]*\)\.")
_TOOK: Final = re.compile(r"[\d.]+ s$")


class LargeClient(RecordingClient):
    """Sends every token at the speed of such Macs; `told` has the events, with times in seconds since the epoch."""

    is_slowed = True

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.told: list[tuple[float, AnyEvent]] = []
        self._previews: dict[tuple[str, ...], PlanPreview] = {}
        self._plan: Plan | None = None
        self._first_s: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}

    async def events(self) -> AsyncIterator[AnyEvent]:
        async for event in super().events():
            if self.is_slowed and isinstance(event, TokenEvent) and self._plan is not None:
                await asyncio.sleep(self.expected.token_s / max(1, len(self._asked_at)))
            large = _renamed(await self._large(event))
            self.told.append((time.time(), large))
            yield large

    async def _call(
        self, method: str, path: str, body: Body | None, kind: type[Any], timeout_s: float | None = ANSWER_S
    ) -> Any:
        if isinstance(body, PlanRequest) and body.model == _SMALL:
            body = replace(body, model=large_model.NAME)
        reply = self._large_reply(await super()._call(method, path, body, kind, timeout_s))
        self.remember(method, path, body, reply)
        return reply

    def _large_reply(self, reply: Any) -> Any:
        if isinstance(reply, PlanPreview):
            return _over_cables(reply)
        if isinstance(reply, TrustView) and self._plan is not None:
            seen = {s.device_id: f"hidden states of layers {s.start}–{s.stop - 1}" for s in self._plan.stages}
            macs = (replace(m, sees=seen[m.device_id] if m.sees.startswith("hidden") else m.sees) for m in reply.macs)
            return replace(reply, macs=tuple(macs))
        if isinstance(reply, list) and reply and isinstance(reply[0], ModelChoice):
            large = (each for each in reply if each.name != _SMALL)
            return [replace(each, loaded=True, preview=_over_cables(each.preview)) for each in large]
        if isinstance(reply, list):
            return [_renamed(_sized(each)) for each in reply]
        return reply

    @property
    def expected(self) -> Forecast:
        assert self._plan is not None
        forecast = self._previews[_macs_of(self._plan)].forecast
        assert forecast is not None
        return forecast

    async def _large(self, event: AnyEvent) -> AnyEvent:
        match event:
            case Snapshot():
                plan = await self._large_plan(event.plan)
                return replace(
                    event,
                    plan=plan,
                    peers=tuple(map(self._large_peer, event.peers)),
                    stages=tuple(map(self._large_stage, event.stages)),
                    hops=tuple(map(self._large_hop, event.hops)) if plan else (),
                    advice=self._advice() if event.advice else "",
                )
            case PlanProposed():
                return replace(event, plan=await self._large_plan(event.plan))
            case PlanAdvice():
                return replace(event, text=self._advice() if event.text else "")
            case Recovery():
                return replace(event, plan=await self._large_plan(event.plan, is_now=False))
            case PeerChanged() | PeerSeen():
                return replace(event, peer=self._large_peer(event.peer))
            case StageState():
                return self._large_stage(event)
            case HopSample() if self._plan is not None:
                return self._large_hop(event)
            case RequestStarted():
                self._asked_at[event.request_id] = time.time()
            case TokenEvent():
                self._first_s.setdefault(event.request_id, time.time() - self._asked_at.get(event.request_id, 0.0))
            case RequestDone() if self._plan is not None:
                self._asked_at.pop(event.request_id, None)
                token_s, first_s = self.expected.token_s, self._first_s.get(event.request_id)
                rate = event.decode_tokens_per_s and 1 / token_s
                return replace(event, ttft_s=first_s and max(first_s, 2 * token_s), decode_tokens_per_s=rate)
        return event

    async def _large_plan(self, small: Plan | None, *, is_now: bool = True) -> Plan | None:
        if small is None:
            return None
        if (macs := _macs_of(small)) not in self._previews:
            self._previews[macs] = await self._planned(macs)
        large = self._previews[macs].plan
        assert large is not None
        large = replace(large, plan_gen=small.plan_gen, rows=small.rows)
        self._plan = large if is_now else self._plan
        return large

    async def _planned(self, macs: tuple[str, ...]) -> PlanPreview:
        """The plan of the large model over these Macs. Their links may be new, so the node needs a moment."""
        snapshot = await self._now()
        others = tuple(p.device_id for p in snapshot.peers if p.device_id not in macs)
        return await self.plan(PreviewRequest(model=large_model.NAME, without=others))

    async def _now(self) -> Snapshot:
        snapshot = await anext(aiter(super().events()))
        assert isinstance(snapshot, Snapshot)
        return snapshot

    def _advice(self) -> str:
        return self.expected.advice if self._plan is not None else ""

    def _large_peer(self, peer: Peer) -> Peer:
        stage = self._stage(peer.device_id)
        if not peer.budget_bytes:
            return peer
        size = stage.weight_bytes + stage.kv_bytes + stage.step_bytes if stage else 0
        return replace(peer, used_bytes=_SYSTEM_BYTES + size, worker_rss_bytes=size if peer.worker_rss_bytes else 0)

    def _large_stage(self, state: StageState) -> StageState:
        if (stage := self._stage(state.device_id)) is None:
            return state
        done = stage.weight_bytes * state.done_bytes // max(1, state.total_bytes)
        total = stage.weight_bytes if state.total_bytes else 0
        return replace(state, done_bytes=done, total_bytes=total, weight_bytes=stage.weight_bytes)

    def _large_hop(self, hop: HopSample) -> HopSample:
        assert self._plan is not None
        stages = [stage.device_id for stage in self._plan.stages]
        if hop.source not in stages:
            return hop
        expected, at = self.expected, stages.index(hop.source)
        return replace(
            hop,
            send_s=min(hop.send_s, hop.frames * _SEND_S),
            wire_s=min(hop.wire_s, hop.frames * _HOP_S),
            rtt_s=hop.rtt_s and min(hop.rtt_s, _RTT_S),
            bytes=hop.frames * large_model.HIDDEN * 2,
            compute_s=hop.frames * expected.stages_s[at],
            wait_s=hop.frames * (expected.token_s - expected.stages_s[at]),
        )

    def _stage(self, device_id: str) -> Any:
        return next((s for s in self._plan.stages if s.device_id == device_id), None) if self._plan else None


class QuickClient(LargeClient):
    """Sends events as fast as the node does; `slowed` sets their times afterwards."""

    is_slowed = False


class ShortClient(LargeClient):
    """Two Macs full with the demo model, shown as full with the large one: the plan is made without their node."""

    def _large_peer(self, peer: Peer) -> Peer:
        budget = _BUDGETS_GB[peer.name] * GB if peer.budget_bytes else 0
        return super()._large_peer(replace(peer, budget_bytes=budget))

    async def _planned(self, macs: tuple[str, ...]) -> PlanPreview:
        snapshot = await self._now()
        peers = {peer.device_id: peer for peer in snapshot.peers}
        preview = await self._imagined([_BUDGETS_GB[peers[mac].name] for mac in macs])
        assert preview.plan
        owned = zip(preview.plan.stages, macs, strict=True)
        stages = tuple(replace(stage, device_id=mac, peer=peers[mac].name) for stage, mac in owned)
        speeds = [memory_bytes_per_s(peers[mac].chip) or 1e11 for mac in macs]
        seconds = tuple(stage.weight_bytes / speed for stage, speed in zip(stages, speeds, strict=True))
        hops = (_HOP_S,) * len(stages)
        told = Forecast(stages_s=seconds, hops_s=hops, prompt_s=None, load_s=0.0, measured=False)
        known = {stage.device_id: mac for stage, mac in zip(preview.plan.stages, macs, strict=True)}
        needed = tuple(known[mac] for mac in preview.plan.indispensable)
        plan = replace(preview.plan, stages=stages, output=macs[0], indispensable=needed)
        return replace(preview, plan=plan, forecast=told)

    async def _large(self, event: AnyEvent) -> AnyEvent:
        large = await super()._large(event)
        if not isinstance(large, Recovery) or not _SHORT.search(large.text):
            return large
        head, *_ = _BUDGETS_GB
        alone = await self._imagined([_BUDGETS_GB[head]])
        assert alone.problem
        what = alone.problem.what.replace("mac 1", head)
        return replace(large, text=_SHORT.sub(lambda _: what, large.text))

    async def _imagined(self, budgets_gb: Sequence[int]) -> PlanPreview:
        found: list[ModelChoice] = await RecordingClient._call(self, "GET", "/v1/models", None, list[ModelChoice])
        path = next(each.path for each in found if each.name == large_model.NAME)
        return await imagined_plan(self.home, PreviewRequest(model=path), budgets_gb)


def slowed(told: Sequence[tuple[float, AnyEvent]], expected: Forecast) -> Iterator[tuple[float, AnyEvent]]:
    """The events at the speed of such Macs: tokens, and the reading of a lost Mac's layers by the others."""
    shift, token_at, held_at = 0.0, told[0][0], 0.0
    for at, event in told:
        if isinstance(event, TokenEvent):
            shift += max(0.0, expected.token_s - (at - token_at))
            token_at = at
        elif isinstance(event, Recovery) and event.state == "hold":
            held_at = held_at or at + shift
        elif isinstance(event, PlanLoaded):
            load_s = expected.load_s * _LOST_PART
            shift, token_at = shift + max(0.0, load_s - event.seconds), at
            event = replace(event, seconds=max(load_s, event.seconds))
        elif isinstance(event, Recovery) and event.state == "running" and held_at:
            token_at = at
            event = replace(event, text=_TOOK.sub(f"{at + shift - held_at:.1f} s", event.text))
        elif isinstance(event, RequestDone) and event.ttft_s:
            event = replace(event, decode_tokens_per_s=1 / expected.token_s)
        yield at + shift, event


def _macs_of(plan: Plan) -> tuple[str, ...]:
    return tuple(stage.device_id for stage in plan.stages)


def _over_cables(preview: PlanPreview) -> PlanPreview:
    """The plan with hops and prefill as estimated for real Macs, which the simulation does not show."""
    if (told := preview.forecast) is None:
        return preview
    hops_s, prompt_s = tuple(min(s, _HOP_S) for s in told.hops_s), told.prompt_s
    if prompt_s is None and not told.measured:
        prompt_s = PROMPT_TOKENS * max(told.stages_s) * EFFICIENCY / PROMPT_GAIN
    return replace(preview, forecast=replace(told, hops_s=hops_s, prompt_s=prompt_s))


def _sized(kept: Any) -> Any:
    return replace(kept, size_bytes=kept.tokens * _KV_BYTES_A_TOKEN) if hasattr(kept, "size_bytes") else kept


def _renamed(value: Any) -> Any:
    words = msgspec.json.encode(value).replace(_SMALL.encode(), large_model.NAME.encode())
    return msgspec.json.decode(words, type=type(value))
