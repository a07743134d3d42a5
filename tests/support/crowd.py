"""Many concurrent clients of an API; some leave before their answer."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from time import monotonic
from typing import Any, NamedTuple

import httpx2

ASK_S = 300.0  # long enough that only a hang exceeds it
_ERROR = "ERROR "
_LAP = re.compile(r"(\w+);dur=([\d.]+)")


class Question(NamedTuple):
    """Path and body of a request, and whether its answer streams."""

    path: str
    body: dict[str, Any]
    streams: bool


class QuestionOutcome(NamedTuple):
    """Result of a question: its number, when it ended (`monotonic`), how long it took, and the outcome."""

    at: float
    question: int
    seconds: float
    what: str


class Crowd:
    """Asks the API at `url` the same questions again and again.

    Each client rests for `rest_s` on average between questions; one that leaves waits `patience_s` at most. `told` has
    the outcomes: the same answer as alone ("right"), another answer, an error, a timeout, a refusal, or the client
    left. `wrong` describes the other answers. `laps`: milliseconds of the node's own time, by name.
    """

    def __init__(
        self,
        url: str,
        key: str,
        seed: int,
        leaving: float,
        most_tokens: int = 24,
        rest_s: float = 0.0,
        patience_s: float = 5.0,
    ) -> None:
        self._dice, self._leaving, self._rest_s, self._patience_s = random.Random(seed), leaving, rest_s, patience_s
        self._client = httpx2.AsyncClient(
            base_url=url, headers={"x-api-key": key}, timeout=ASK_S, limits=httpx2.Limits(max_connections=None)
        )
        self._questions = [self._question(number, most_tokens) for number in range(16)]
        self._alone: list[str] = []
        self.told: list[QuestionOutcome] = []
        self.wrong: list[str] = []
        self.laps: dict[str, list[float]] = {}

    @property
    def come(self) -> Counter[str]:
        """Count of each outcome."""
        return Counter(told.what for told in self.told)

    async def ask_alone(self) -> None:
        """Ask each question by itself; its answer counts as right."""
        self._alone = [await self._answer(question) for question in self._questions]

    async def ask_together(self, clients: int, seconds: float) -> None:
        """Run `clients` clients for `seconds`, until all have their answers."""
        until = monotonic() + seconds
        await asyncio.gather(*(self._be_client(until) for _ in range(clients)))

    async def close(self) -> None:
        await self._client.aclose()

    async def _be_client(self, until: float) -> None:
        while monotonic() < until:
            number, began = self._dice.randrange(len(self._questions)), monotonic()
            what = await self._ask(number)
            self.told.append(QuestionOutcome(monotonic(), number, monotonic() - began, what))
            await asyncio.sleep(self._dice.uniform(0, 2 * self._rest_s) + what.startswith("status"))

    async def _ask(self, number: int) -> str:
        leaves = self._dice.random() < self._leaving
        try:
            async with asyncio.timeout(self._dice.uniform(0, self._patience_s) if leaves else ASK_S):
                answer = await self._answer(self._questions[number])
        except TimeoutError:
            return "left" if leaves else "too late"
        except httpx2.HTTPStatusError as error:
            return f"status {error.response.status_code}"
        if answer == self._alone[number]:
            return "right"
        if _ERROR in answer:
            return "error"
        self.wrong.append(f"{self._questions[number]}: {answer!r}, alone {self._alone[number]!r}")
        return "wrong"

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
    """Text of a whole reply, or of one chunk of it."""
    if error := body.get("error"):
        return f"{_ERROR}{error['message']}"
    choices = body["choices"]
    if not choices:
        return ""
    said = choices[0].get("message") or choices[0].get("delta") or choices[0]
    return f"{said.get('reasoning_content') or ''}{said.get('content') or said.get('text') or ''}"
