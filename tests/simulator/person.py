"""A person at a Mac: loads, asks, cancels, chooses, and continues unfinished answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from core.errors import MaclusterError
from core.requests.answers import AnswerId, ChatRequest, Message
from core.requests.conversations import SessionName
from core.requests.plans import LoadRequest
from core.sampling_options import Sampling
from tests.simulator.watching import Watching
from tests.simulator.world import World
from tests.support.simulated import VOCABULARY

MORE = 40  # tokens of an answer with a mirror
SESSION = SessionName(name="s")


class Person:
    """A person whose refused requests are counted and have no effect."""

    def __init__(self, world: World, watching: Watching) -> None:
        self._world, self._watching, self._random, self._head = world, watching, world.random, watching.head

    def load(self, model: str = "large") -> None:
        self._world.tell(f"load {model}")
        topology = self._world.kind.topology if len(self._world.macs) > 1 else None
        self._do(self._loading, LoadRequest(model=model, topology=topology, mirror=self._world.kind.mirrors))

    def load_small(self) -> None:
        self.load("small")

    def unload(self) -> None:
        self._world.tell("unload")
        self._do(self._head.node.plans.unload)

    def ask(self) -> None:
        random = self._random
        prompt = " ".join(str(random.randrange(VOCABULARY)) for _ in range(random.choice((1, 3, 9))))
        words = (Message(role="user", content=prompt),)
        request = ChatRequest(messages=words, max_tokens=random.randint(2, 24), min_tokens=random.randrange(3))
        if self._world.kind.mirrors:
            request = replace(request, max_tokens=request.max_tokens + MORE, min_tokens=request.min_tokens + MORE)
        if self._world.kind.draws:
            request = replace(
                request, sampling=Sampling(temperature=0.7, seed=self._world.kind.whims.choice((None, 5)))
            )
        self._do(self._head.node.answers.ask, request)

    def save(self) -> None:
        self._do(self._moving, "save")

    def bring(self) -> None:
        self._do(self._moving, "load")

    async def _moving(self, what: str) -> None:
        node = self._head.node
        self._watching.moving.append(node)
        try:
            await getattr(node.sessions, what)(SESSION)
            self._world.kinds[f"{what} a session"] += 1
        finally:
            self._watching.moving.remove(node)

    def follow(self) -> None:
        """Ask a question that follows a saved conversation."""
        if saved := self._head.disk.sessions.get(SESSION.name):
            words = (Message(role="user", content=" ".join(map(str, [*saved.tokens, 3, 7]))),)
            self._do(self._head.node.answers.ask, ChatRequest(messages=words, max_tokens=9))

    def cancel(self) -> None:
        running = [name for name, asked in self._watching.asked.items() if not asked.done]
        if running and self._head.is_up:
            name = self._random.choice(running)
            self._world.tell(f"cancel {name[:4]}")
            self._watching.asked[name].is_cancelled = True
            self._head.node.process.soon(self._head.node.answers.cancel, name)

    def choose(self, wanted: str = "") -> None:
        """Take a random choice of those offered, or the wanted one if it is offered."""
        recovery = self._head.node.bus.now.recovery
        choices = [choice for choice in recovery.choices if wanted in ("", choice)] if recovery else []
        if self._head.is_up and choices:
            choice = self._random.choice(choices)
            self._world.tell(f"choose {choice}")
            self._world.kinds[choice] += 1
            for asked in self._watching.asked.values():
                asked.is_cancelled |= choice == "stop"
            self._head.node.process.soon(self._chosen, choice)

    def go_on(self) -> None:
        """Load the model again after it was given up, else continue unfinished answers."""
        if self._head.is_over and self._random.random() < 0.7:
            self.load()
        elif self._head.is_up:
            self.go_on_with_all()

    def go_on_with_all(self) -> None:
        node = self._head.node
        for name, log in self._head.disk.logs.items():
            if log.read().ended is None and node.worker.is_ready and name not in node.answers.under_way:
                self._do(node.answers.go_on, AnswerId(request_id=name))

    async def _loading(self, request: LoadRequest) -> None:
        self._watching.was_ready = False
        await self._head.node.plans.load(request)

    def _chosen(self, choice: Any) -> None:
        with suppress(MaclusterError):  # another decision came first
            self._head.node.plans.choose(choice)

    def _do(self, work: Callable[..., Any], *args: Any) -> None:
        async def doing() -> None:
            try:
                await work(*args)
            except MaclusterError as error:
                self._world.kinds["refused"] += 1
                self._world.tell(f"refused: {error}")

        if self._head.is_up:
            self._head.node.process.spawn(doing)
