"""Many clients of an API at a time, some of whom leave before they are answered."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from time import monotonic
from typing import Any, NamedTuple

import httpx2

ASK_S = 300.0  # whoever waits longer waits for ever
_LAP = re.compile(r"(\w+);dur=([\d.]+)")


class Question(NamedTuple):
    """What is asked of which API, and whether the answer is to come as it is written."""

    path: str
    body: dict[str, Any]
    streams: bool


class Crowd:
    """Asks the API at `url` the same questions again and again. `come`: how often an answer was the same as when it was
    asked for alone, was another one, did not come in time, was refused, or its client left; `wrong` says what came.
    `laps`: milliseconds of the node's own time, by their names; `longest_s`: so long the slowest answer took.
    """

    def __init__(self, url: str, key: str, seed: int, leaving: float, most_tokens: int = 24) -> None:
        self._dice, self._leaving = random.Random(seed), leaving
        self._client = httpx2.AsyncClient(
            base_url=url, headers={"x-api-key": key}, timeout=ASK_S, limits=httpx2.Limits(max_connections=None)
        )
        self._questions = [self._question(number, most_tokens) for number in range(16)]
        self._alone: list[str] = []
        self.come: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.laps: dict[str, list[float]] = {}
        self.longest_s = 0.0

    async def ask_alone(self) -> None:
        """Each question by itself: what comes counts as right."""
        self._alone = [await self._answer(question) for question in self._questions]

    async def ask_together(self, clients: int, seconds: float) -> None:
        """So many at a time for so long, until all are answered."""
        until = monotonic() + seconds
        await asyncio.gather(*(self._be_client(until) for _ in range(clients)))

    async def close(self) -> None:
        await self._client.aclose()

    async def _be_client(self, until: float) -> None:
        while monotonic() < until:
            number, began = self._dice.randrange(len(self._questions)), monotonic()
            leaves = self._dice.random() < self._leaving
            try:
                async with asyncio.timeout(self._dice.uniform(0, 5) if leaves else ASK_S):
                    answer = await self._answer(self._questions[number])
            except TimeoutError:
                self.come["left" if leaves else "too late"] += 1
                continue
            except httpx2.HTTPStatusError as error:
                self.come[f"status {error.response.status_code}"] += 1
                await asyncio.sleep(1)
                continue
            self.longest_s = max(self.longest_s, monotonic() - began)
            is_right = answer == self._alone[number]
            self.come["right" if is_right else "wrong"] += 1
            if not is_right:
                self.wrong.append(f"{self._questions[number]}: {answer!r}, alone {self._alone[number]!r}")

    async def _answer(self, question: Question) -> str:
        body = {**question.body, "stream": question.streams}
        async with self._client.stream("POST", question.path, json=body) as reply:
            reply.raise_for_status()
            for name, value in _LAP.findall(reply.headers.get("server-timing", "")):
                self.laps.setdefault(name, []).append(float(value))
            if not question.streams:
                return _text(json.loads(await reply.aread()))
            said = ""
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    said += _text(json.loads(line.removeprefix("data: ")))
            return said

    def _question(self, number: int, most_tokens: int) -> Question:
        text = f"Question {number}: what is {self._dice.choice(('a hop', 'a lane', 'the ring', 'a stage'))}?"
        asked = {"max_tokens": self._dice.randint(1, most_tokens), "temperature": 0.0}
        if number % 4 == 3:
            return Question("/completions", {**asked, "prompt": text}, number % 8 == 3)
        return Question(
            "/chat/completions", {**asked, "messages": [{"role": "user", "content": text}]}, bool(number % 2)
        )


def _text(body: dict[str, Any]) -> str:
    """Of a whole reply, or of a piece of one."""
    if error := body.get("error"):
        return f"ERROR {error['message']}"
    choices = body["choices"]
    if not choices:
        return ""
    said = choices[0].get("message") or choices[0].get("delta") or choices[0]
    return f"{said.get('reasoning_content') or ''}{said.get('content') or said.get('text') or ''}"
