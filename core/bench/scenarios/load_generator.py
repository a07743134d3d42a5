"""Requests to any server of OpenAI's chat completions, and the measurements of each."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple

import aiohttp

from core.bench.scenarios.definitions import Scenario, ScenarioRequest, asked, prompt
from core.bench.scenarios.percentiles import HTTP_OK, ReplyFigures
from core.bench.scenarios.report import LoadLevel, LoadOutcome
from core.errors import UsageError

ASK_S: Final = 1800.0
_LAP: Final = re.compile(r"(\w+);dur=([\d.]+)")
_LATE: Final = b": server-timing "  # after a stream, whose headers had to go out before all times were known
_WARM: Final = 100_000  # prompt numbers that no scenario uses


class AskedModel(NamedTuple):
    """API of one model."""

    url: str  # ends in /v1
    model: str
    keys: Sequence[str]  # one per user


async def model_of(url: str, key: str) -> str:
    """The first model that a server lists. Raises UsageError."""
    try:
        async with _session() as session, session.get(f"{url}/models", headers=_headers(key)) as reply:
            return str((await reply.json(content_type=None))["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{url} lists no model: {error}", "Check --url (it ends in /v1) and --key.") from error


async def measured(scenario: Scenario, load: LoadLevel, targets: Sequence[AskedModel]) -> LoadOutcome:
    """Warm up, then send all requests of the scenario; `targets` has one API per model."""
    problems: list[str] = []
    async with _session() as session:
        for target in targets:
            for number in range(load.warm_up):
                warm = ScenarioRequest(0.0, 0, 0, prompt(_WARM + number, scenario.prompt_bytes))
                await _ask(session, scenario, target, warm, problems)
        problems.clear()
        room = asyncio.Semaphore(scenario.requests if load.rate else scenario.concurrency)
        began = perf_counter()

        async def one(each: ScenarioRequest) -> ReplyFigures:
            if load.rate:
                await asyncio.sleep(max(0.0, began + each.start_s - perf_counter()))
            async with room:
                return await _ask(session, scenario, targets[each.model % len(targets)], each, problems)

        replies = await asyncio.gather(*map(one, asked(scenario, load.rate, load.seed)))
        return LoadOutcome(replies, perf_counter() - began, problems)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=ASK_S), read_bufsize=1 << 18
    )


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


async def _ask(
    session: aiohttp.ClientSession, scenario: Scenario, target: AskedModel, each: ScenarioRequest, problems: list[str]
) -> ReplyFigures:
    body: dict[str, Any] = {
        "model": target.model,
        "messages": [{"role": "user", "content": each.prompt}],
        "max_tokens": scenario.max_tokens,
        "temperature": 0,
        "stream": scenario.streams,
    }
    if scenario.streams:
        body["stream_options"] = {"include_usage": True}
    headers = _headers(target.keys[each.user % len(target.keys)])
    began = perf_counter()
    try:
        async with session.post(f"{target.url}/chat/completions", json=body, headers=headers) as reply:
            laps = _laps(reply.headers.get("Server-Timing", ""))
            if reply.status != HTTP_OK:
                problems.append(f"status {reply.status}: {(await reply.text())[:200]}")
                return ReplyFigures(reply.status, perf_counter() - began)
            if not scenario.streams:
                reported = json.loads(await reply.read())
                tokens = int((reported.get("usage") or {}).get("completion_tokens", 0))
                return ReplyFigures(HTTP_OK, perf_counter() - began, tokens=tokens, laps=laps)
            return await _streamed(reply, began, laps)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        problems.append(f"{type(error).__name__}: {error}"[:200])
        return ReplyFigures(0, perf_counter() - began)


async def _streamed(reply: aiohttp.ClientResponse, began: float, laps: dict[str, float]) -> ReplyFigures:
    """Read a stream up to [DONE]. Raises ValueError for one that ends without it."""
    first = last = 0.0
    tokens = pieces = 0
    async for line in reply.content:
        if line.startswith(_LATE):
            laps = _laps(line.removeprefix(_LATE).decode())
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            total = perf_counter() - began
            return ReplyFigures(HTTP_OK, total, first - began if first else None, tokens or pieces, last - first, laps)
        reported = json.loads(line.removeprefix(b"data: "))
        if error := reported.get("error"):
            raise ValueError(f"the stream ended: {error}")
        if usage := reported.get("usage"):
            tokens = int(usage.get("completion_tokens", 0))
        if any(_has_text(choice.get("delta") or {}) for choice in reported.get("choices") or ()):
            last = perf_counter()
            first, pieces = first or last, pieces + 1
    raise ValueError("the stream was cut off")


def _laps(timing: str) -> dict[str, float]:
    return {name: float(ms) / 1e3 for name, ms in _LAP.findall(timing)}


def _has_text(delta: dict[str, Any]) -> bool:
    return bool(delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"))
