"""The ten scenarios by their names, and the requests that one consists of."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from core.errors import UsageError

HEAVY_BYTES: Final = 10_240


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`providers`: how many Macs beside the head each of its clusters has, one cluster a model. `users`, each with a
    key of its own, take turns, and so do the models. `concurrency` requests are under way at a time, `queue` may wait.
    A prompt is padded to `prompt_bytes`.
    """

    name: str
    providers: tuple[int, ...]
    users: int
    requests: int
    concurrency: int
    max_tokens: int
    streams: bool = True
    queue: int = 200
    prompt_bytes: int = 0


class ScenarioRequest(NamedTuple):
    """One request: at the earliest so many seconds behind the first one, by that user, of that model."""

    start_s: float
    user: int
    model: int
    prompt: str


def _scaling(providers: int) -> Scenario:
    return Scenario(
        name=f"{providers}-provider-scaling",
        providers=(providers,),
        users=5,
        requests=30,
        concurrency=10,
        max_tokens=32,
    )


SCENARIOS: Final[Mapping[str, Scenario]] = {
    one.name: one
    for one in (
        Scenario(
            name="1-provider-streaming", providers=(1,), users=1, requests=30, concurrency=5, max_tokens=64, queue=100
        ),
        Scenario(
            name="1-provider-non-streaming", providers=(1,), users=1, requests=20, concurrency=5, max_tokens=64,
            streams=False, queue=100,
        ),
        Scenario(
            name="7-provider-multi-model", providers=(4, 3), users=5, requests=50, concurrency=10, max_tokens=64
        ),
        Scenario(
            name="3-provider-high-concurrency", providers=(3,), users=10, requests=60, concurrency=20, max_tokens=32
        ),
        Scenario(
            name="1-provider-queue-saturation", providers=(1,), users=10, requests=40, concurrency=15, max_tokens=32
        ),
        Scenario(name="3-provider-20-users", providers=(3,), users=20, requests=60, concurrency=10, max_tokens=32),
        _scaling(1),
        _scaling(3),
        _scaling(5),
        Scenario(
            name="3-provider-heavy-100conc-10kb", providers=(3,), users=20, requests=100, concurrency=100,
            max_tokens=32, prompt_bytes=HEAVY_BYTES,
        ),
    )
}  # fmt: skip


def chosen(names: Sequence[str]) -> tuple[Scenario, ...]:
    """Those of these names, or all. Raises UsageError."""
    if unknown := [name for name in names if name not in SCENARIOS]:
        raise UsageError(f"There is no scenario {unknown[0]!r}.", f"There are {', '.join(SCENARIOS)}.")
    return tuple(SCENARIOS[name] for name in names) or tuple(SCENARIOS.values())


def asked(scenario: Scenario, rate: float | None, seed: int) -> tuple[ScenarioRequest, ...]:
    """Its requests. Without a `rate` each begins as soon as one before has ended (closed loop); with it they come at
    so many a second, at random times by `seed`, whatever becomes of those before (open loop).
    """
    dice, start_s, requests = random.Random(seed), 0.0, []
    for number in range(scenario.requests):
        user, model = number % scenario.users, number % len(scenario.providers)
        requests.append(ScenarioRequest(start_s, user, model, prompt(number, scenario.prompt_bytes)))
        start_s += dice.expovariate(rate) if rate else 0.0
    return tuple(requests)


def prompt(number: int, length: int = 0) -> str:
    """The question of that number, at least `length` bytes long. The spaces stand before its last word: at its end many
    chat templates would cut them off, and a short prompt would be measured.
    """
    words, last = f"What is {number}+{number + 1}? Answer with just the", " number."
    return words + " " * max(0, length - len(words) - len(last)) + last
