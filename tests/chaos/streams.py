"""Faults during a streamed answer over the head's API."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic
from typing import Any, Final

import httpx2

from core.events import RequestStarted
from core.requests.api import ApiKeyName
from tests.chaos.bed import Bed
from tests.chaos.mac import Mac
from tests.chaos.trial import ANSWER_S, LATEST, SEEDS, SHORT, TOKENS, Tried, times_of

KEY: Final = ApiKeyName(name="chaos")


async def kill_under_stream(bed: Bed, dice: random.Random) -> Tried:
    """kill -9 of any worker or of a member's node: the client gets the undisturbed answer, once and whole."""
    cluster, head = bed.cluster, bed.cluster.macs[0]
    served = await cluster.head.client.start_api()
    key = (await cluster.head.client.new_api_key(KEY)).key
    seed = dice.choice(SEEDS)
    asked = {"messages": [{"role": "user", "content": dice.choice(SHORT)}], "max_tokens": TOKENS}
    asked |= {"temperature": 0.0} if seed is None else {"temperature": 0.8, "top_k": 40, "seed": seed}
    wrong: list[str] = []
    async with httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": key}, timeout=ANSWER_S) as client:
        expected = [said async for said in _said(client, asked)]
        cluster.forget()
        pieces, at, where = list[str](), 0.0, 1 + int(dice.random() * max(1, len(expected) - LATEST))
        victim = dice.choice((head, bed.victim(dice)))
        try:
            async with aclosing(_said(client, asked)) as stream:
                async for said in stream:
                    pieces.append(said)
                    if len(pieces) == where:
                        at = monotonic()
                        _kill(victim, dice, may_be_node=victim is not head)
        except (httpx2.HTTPError, RuntimeError) as error:
            wrong.append(f"The stream broke off behind {len(pieces)} pieces: {error!r}")
    await cluster.head.client.revoke_api_key(KEY)
    if "".join(pieces) != "".join(expected):
        wrong.append(f"The program heard {''.join(pieces)!r}, and undisturbed {''.join(expected)!r}.")
    began = [each.event.request_id for each in cluster.heard if isinstance(each.event, RequestStarted)]
    return Tried(f"piece {where} of {len(pieces)}", len(pieces), times_of(cluster.heard, at, began), tuple(wrong))


def _kill(mac: Mac, dice: random.Random, *, may_be_node: bool) -> None:
    if may_be_node and dice.random() < 0.5:
        mac.kill()
    else:
        os.kill(mac.worker, signal.SIGKILL)


async def _said(client: httpx2.AsyncClient, asked: dict[str, Any]) -> AsyncGenerator[str, None]:
    """The text chunks, as they come. Raises httpx2.HTTPError; RuntimeError if the stream has a problem or no end."""
    async with client.stream("POST", "/chat/completions", json={**asked, "stream": True}) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if line == "data: [DONE]":
                return
            if line.startswith("data: "):
                body = json.loads(line.removeprefix("data: "))
                if problem := body.get("error"):
                    raise RuntimeError(problem["message"])
                if said := body["choices"][0]["delta"].get("content"):
                    yield said
    raise RuntimeError("no [DONE]")
