"""The ten scenarios, and the requests of each."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from core.errors import UsageError

HEAVY_BYTES: Final = 10_240


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One load test. Users and models take turns."""

    name: str
    providers: tuple[int, ...]  # Macs besides the head, for each cluster; one cluster per model
    users: int  # each with an API key of their own
    requests: int
    concurrency: int  # requests in flight at a time
    max_tokens: int
    streams: bool = True
    queue: int = 200  # requests that may wait
    prompt_bytes: int = 0  # prompts are padded to this length


class ScenarioRequest(NamedTuple):
    """One request."""

    start_s: float  # earliest start, seconds after the first request
    user: int
    model: int
    prompt: str


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
        *(
            Scenario(name=f"{n}-provider-scaling", providers=(n,), users=5, requests=30, concurrency=10, max_tokens=32)
            for n in (1, 3, 5)
        ),
        Scenario(
            name="3-provider-heavy-100conc-10kb", providers=(3,), users=20, requests=100, concurrency=100,
            max_tokens=32, prompt_bytes=HEAVY_BYTES,
        ),
    )
}  # fmt: skip


def chosen(names: Sequence[str]) -> tuple[Scenario, ...]:
    """Scenarios by name; all if `names` is empty. Raises UsageError."""
    if unknown := [name for name in names if name not in SCENARIOS]:
        raise UsageError(f"There is no scenario {unknown[0]!r}.", f"There are {', '.join(SCENARIOS)}.")
    return tuple(SCENARIOS[name] for name in names) or tuple(SCENARIOS.values())


def asked(scenario: Scenario, rate: float | None, seed: int) -> tuple[ScenarioRequest, ...]:
    """The requests of a scenario.

    Without `rate` each starts as soon as an earlier one has ended (closed loop). With it they start at random times,
    `rate` per second on average, drawn with `seed` (open loop).
    """
    dice, start_s, requests = random.Random(seed), 0.0, []
    for number in range(scenario.requests):
        user, model = number % scenario.users, number % len(scenario.providers)
        requests.append(ScenarioRequest(start_s, user, model, prompt(number, scenario.prompt_bytes)))
        start_s += dice.expovariate(rate) if rate else 0.0
    return tuple(requests)


def prompt(number: int, length: int = 0) -> str:
    """Prompt number `number`, padded to `length` bytes before its last word, as chat templates strip final spaces."""
    words, last = f"What is {number}+{number + 1}? Answer with just the", " number."
    return words + " " * max(0, length - len(words) - len(last)) + last
