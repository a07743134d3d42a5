"""A model over simulated Macs, and its API for other programs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from core.requests.plans import LoadRequest
from core.trust.api_keys import ApiKeys
from tests.support.cluster import LOAD, running_demo
from tests.support.nodes import free_port
from tui.cli.demo import Demo

KEY = "sesame"
ANSWER_S = 300.0


class Served:
    """A cluster and a client of its API."""

    def __init__(self, demo: Demo, port: int, http: httpx2.AsyncClient) -> None:
        self.demo, self.http = demo, http
        self.url, self.model = f"http://127.0.0.1:{port}", Path(demo.model)

    async def post(self, path: str, **body: Any) -> Any:
        """The decoded reply to a request that must succeed."""
        reply = await self.http.post(path, json={"model": self.model.name, **body})
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def chat(self, messages: Sequence[Any], **body: Any) -> Any:
        """The message that answers a chat."""
        return (await self.post("/v1/chat/completions", messages=messages, **body))["choices"][0]["message"]

    async def stream(self, path: str, **body: Any) -> list[Any]:
        """The decoded events of a streamed reply."""
        asked = {"model": self.model.name, "stream": True, **body}
        async with self.http.stream("POST", path, json=asked) as reply:
            assert reply.status_code == 200, await reply.aread()
            said = [line.removeprefix("data: ") async for line in reply.aiter_lines() if line.startswith("data: ")]
        return [json.loads(data) for data in said if data != "[DONE]"]


@asynccontextmanager
async def served(model: Path, budgets: Sequence[float], load: LoadRequest = LOAD) -> AsyncIterator[Served]:
    port = free_port()
    async with running_demo(model, budgets, api_ports=(port,), load=load) as demo:
        ApiKeys(demo.home.api_keys).add("tests", 1.0, KEY)
        headers = {"Authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, verify=False, timeout=ANSWER_S
        ) as http:
            yield Served(demo, port, http)
