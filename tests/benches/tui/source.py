"""Stand-in for a node in the UI's bench: a socket that sends events at a pace that no model could keep.

A prompt that begins with "fill" is answered as fast as the socket takes it, any other one at the given rate until it is
stopped. At the same time it sends beats of all Macs, hop samples and tokens of other users' answers. No model runs, so
only the UI is measured. Each end of an answer is printed on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec
from aiohttp import web

from core.events import (
    AnyEvent,
    HopSample,
    Peer,
    PeerChanged,
    Plan,
    RequestDone,
    RequestStarted,
    Snapshot,
    Stage,
    StageState,
    TokenEvent,
    TrustChanged,
    encode_event,
)
from core.requests.answers import RequestAccepted
from core.requests.body import Done
from core.settings import GB
from core.snapshot import apply

STAGES = 3
LAYERS = 64
FILL_TOKENS = 2000
OTHERS_RATE = 10.0
SAMPLE_S = 0.5
SENTENCE = "layers of one model over several macs so that each holds a part and only one vector goes between them"


def words(seed: int) -> Iterator[str]:
    """Endless Markdown in small letters, a word at a time: paragraphs, lists and code."""
    dice, vocabulary = random.Random(seed), SENTENCE.split()
    while True:
        kind = dice.choice(("text", "text", "list", "code"))
        if kind == "code":
            yield "```python\n"
            for _ in range(8):
                yield from (f"{word} = {word}(" for word in dice.choices(vocabulary, k=3))
                yield "0)))\n"
            yield "```\n\n"
        elif kind == "list":
            for _ in range(5):
                yield "- "
                yield from (f"{word} " for word in dice.choices(vocabulary, k=8))
                yield "\n"
            yield "\n"
        else:
            yield from (f"{word} " for word in dice.choices(vocabulary, k=60))
            yield "\n\n"


def snapshot(macs: int) -> Snapshot:
    """`macs` Macs; three hold a model."""
    peers = tuple(_peer(number) for number in range(macs))
    bounds = [LAYERS * number // STAGES for number in range(STAGES + 1)]
    stages = tuple(
        Stage(
            device_id=peers[n].device_id,
            peer=peers[n].name,
            start=bounds[n],
            stop=bounds[n + 1],
            weight_bytes=6 * GB,
            kv_bytes=GB,
            budget_bytes=48 * GB,
        )
        for n in range(STAGES)
    )
    plan = Plan(
        plan_gen=1,
        model="bench",
        fingerprint="0" * 64,
        topology="private",
        layers=LAYERS,
        context=32768,
        chunk=512,
        stages=stages,
        output=stages[0].device_id,
    )
    ready = tuple(StageState(device_id=s.device_id, status="ready", weight_bytes=s.weight_bytes) for s in stages)
    trust = TrustChanged(level="paired", weakest=peers[1].name)
    return Snapshot(peers=peers, plan=plan, plan_status="ready", stages=ready, trust=trust)


def _peer(number: int) -> Peer:
    linked = number < STAGES
    return Peer(
        device_id=f"{number:026}",
        name=f"mac{number}",
        chip="M4 Pro",
        memory_bytes=64 * GB,
        budget_bytes=48 * GB if linked else 0,
        used_bytes=7 * GB if linked else 0,
        state="connected" if linked else "seen",
        trust="paired" if linked else "seen",
        is_self=number == 0,
        rtt_s=0.001,
    )


class Source:
    """Events of the socket. `rate` in tokens per second; `rows` counts all answers, including the one on screen."""

    def __init__(self, macs: int, rows: int, rate: float) -> None:
        self.now = snapshot(macs)
        self._rows, self._rate = rows, rate
        self._listeners: list[asyncio.Queue[AnyEvent]] = []
        self._numbers = count(1)
        self._answer: asyncio.Task[None] | None = None
        self._frames = 0

    def say(self, event: AnyEvent) -> None:
        """Send an event to every listener."""
        self.now = apply(self.now, event)
        for listener in self._listeners:
            listener.put_nowait(event)

    async def follow(self) -> AsyncIterator[AnyEvent]:
        """The snapshot, then all later events."""
        queue: asyncio.Queue[AnyEvent] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            yield self.now
            while True:
                yield await queue.get()
        finally:
            self._listeners.remove(queue)

    async def beat(self) -> None:
        """Memory and round trips of all Macs, twice a second for Macs with layers, else once."""
        dice = random.Random(1)
        for round_number in count():
            for number, peer in enumerate(self.now.peers):
                if number < STAGES or round_number % 2:
                    change = msgspec.structs.replace
                    self.say(PeerChanged(peer=change(peer, rtt_s=dice.uniform(0.0005, 0.006))))
            await asyncio.sleep(SAMPLE_S)

    async def others(self) -> None:
        """The answers that are not on screen."""
        text = words(2)
        for index in count():
            for row in range(self._rows - 1):
                self.say(TokenEvent(request_id=f"other{row}", index=index, token=index, text=next(text)))
            await asyncio.sleep(1 / OTHERS_RATE)

    def ask(self, text: str) -> str:
        """Begin an answer and return its id."""
        request_id = f"answer{next(self._numbers)}"
        self._answer = asyncio.create_task(self._write(request_id, fill=text.startswith("fill")))
        return request_id

    async def stop(self) -> None:
        """Cancel the answer that runs."""
        if self._answer is not None:
            self._answer.cancel()

    async def _write(self, request_id: str, *, fill: bool) -> None:
        self.say(RequestStarted(request_id=request_id, prompt_tokens=40))
        clock = asyncio.get_running_loop().time
        began, text, written = clock(), words(3), 0
        sampled = asyncio.create_task(self._sample())
        try:
            while not (fill and written == FILL_TOKENS):
                self.say(TokenEvent(request_id=request_id, index=written, token=written, text=next(text)))
                written += 1
                await asyncio.sleep(0 if fill else began + written / self._rate - clock())
        finally:
            sampled.cancel()
            self.say(
                RequestDone(
                    request_id=request_id,
                    finish_reason="stop" if fill else "cancelled",
                    prompt_tokens=40,
                    tokens=written,
                    decode_tokens_per_s=written / max(1e-3, clock() - began),
                )
            )
            print("done", flush=True)

    async def _sample(self) -> None:
        """Hops that differ and change, so that the charts have something to draw."""
        dice = random.Random(4)
        macs = [stage.device_id for stage in self.now.plan.stages] if self.now.plan else []
        while True:
            await asyncio.sleep(SAMPLE_S)
            self._frames += int(self._rate * SAMPLE_S)
            for number, source in enumerate(macs):
                self.say(
                    HopSample(
                        source=source,
                        target=macs[(number + 1) % len(macs)],
                        frames=self._frames,
                        bytes=self._frames * 10_240,
                        compute_s=self._frames * 0.004,
                        codec_s=self._frames * 0.0001,
                        seal_s=self._frames * 0.0001,
                        send_s=self._frames * dice.uniform(0.0002, 0.002),
                        wait_s=self._frames * 0.006,
                        open_s=self._frames * 0.0001,
                        rtt_s=dice.uniform(0.0005, 0.006),
                    )
                )


def app_of(source: Source) -> web.Application:
    """The routes that the UI needs for a chat; all others exist and are empty."""

    async def events(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        with suppress(ConnectionError):
            async for event in source.follow():
                await reply.write(b"data: " + encode_event(event) + b"\n\n")
        return reply

    async def chat(request: web.Request) -> web.StreamResponse:
        asked = msgspec.json.decode(await request.read())["messages"][-1]["content"]
        accepted = RequestAccepted(request_id=source.ask(asked), prompt_tokens=40)
        return web.Response(body=msgspec.json.encode(accepted), status=202)

    async def stop(request: web.Request) -> web.StreamResponse:
        await source.stop()
        return web.Response(body=msgspec.json.encode(Done()))

    async def nothing(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"[]" if request.method == "GET" else b"{}")

    app = web.Application()
    app.add_routes([web.get("/v1/events", events), web.post("/v1/chat", chat), web.post("/v1/chat/{id}/stop", stop)])
    app.add_routes([web.route("*", "/{path:.*}", nothing)])
    return app


async def serve(socket: Path, source: Source) -> None:
    """Serve until this process is ended."""
    runner = web.AppRunner(app_of(source), access_log=None)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    print("ready", flush=True)
    await asyncio.gather(source.beat(), source.others())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("socket", type=Path)
    parser.add_argument("--macs", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    given = parser.parse_args()
    sys.exit(asyncio.run(serve(given.socket, Source(given.macs, given.rows, given.rate))))
