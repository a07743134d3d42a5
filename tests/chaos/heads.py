"""Faults of shared Macs and of saved conversations: two heads at the same time, and a conversation that is loaded."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from core.errors import MaclusterError
from core.requests.answers import Message
from core.requests.conversations import SessionName
from tests.chaos.bed import Bed
from tests.chaos.mac import Mac
from tests.chaos.trial import (
    ANSWER_S,
    EARLIEST,
    LATEST,
    LONG,
    SEEDS,
    SHORT,
    TOKENS,
    Ask,
    DoesNotWander,
    Point,
    Tried,
    answer_of,
    begin,
    differences,
    ended,
    nothing,
    times_of,
    written,
)
from tui.cli.watch import Watch

SESSION: Final = SessionName(name="chaos-again")
AGAIN_S: Final = 0.5


async def two_heads(bed: Bed, dice: random.Random) -> Tried:
    """The first Mac answers alone, the second one with the third; a worker of either plan or the third Mac's node is
    killed, and both answers equal the undisturbed ones.
    """
    cluster = bed.cluster
    first, second, third = cluster.macs
    asks = {mac: Ask(dice.choice(SHORT), TOKENS, dice.choice(SEEDS)) for mac in (first, second)}
    expected = {mac: await bed.undisturbed.of(cluster, ask) for mac, ask in asks.items()}
    await cluster.head.client.unload()
    await asyncio.gather(cluster.load(first, (second, third)), cluster.load(second, (first,)))
    cluster.forget()
    begun = {mac: await begin(_watch(mac), ask) for mac, ask in asks.items()}
    count = EARLIEST + int(dice.random() * (TOKENS - LATEST - EARLIEST))
    waited = dice.choice((first, second))
    await _watch(waited).until(
        lambda _: written(cluster.heard_of[waited.name], begun[waited]) >= count, ANSWER_S, "Writing"
    )
    victim, at = dice.choice((first, second, third)), monotonic()
    if victim is third and dice.random() < 0.5:
        victim.kill()
    else:
        os.kill(victim.worker, signal.SIGKILL)
    wrong = []
    for mac, request in begun.items():
        await ended(_watch(mac), request)
        wrong += differences(answer_of(cluster.heard_of[mac.name], request), expected[mac], asks[mac])
    hit = first if victim is first else second
    times = times_of(cluster.heard_of[hit.name], at, [begun[hit]])
    for mac in (first, second):
        await _watch(mac).client.unload()
    return Tried(f"token {count} of {waited.name}, {victim.name} is hit", 2 * TOKENS, times, tuple(wrong))


async def kill_at_load_of_session(bed: Bed, dice: random.Random) -> Tried:
    """A worker is killed while a saved conversation is loaded: it is loaded again and continues as if never saved."""
    cluster, asked = bed.cluster, Ask(dice.choice(SHORT), 16)
    said = await bed.undisturbed.of(cluster, asked)
    before = (Message(role="user", content=asked.prompt), Message(role="assistant", content=said.text))
    ask = await _wandering(bed, [Ask(prompt, TOKENS, dice.choice(SEEDS), before) for prompt in dice.sample(SHORT, 5)])
    await ended(cluster.head, await begin(cluster.head, asked))
    await cluster.head.client.save_session(SESSION)
    for prompt in LONG[:2]:  # drops its rows from memory
        await ended(cluster.head, await begin(cluster.head, Ask(prompt, 1)))
    victim, late_s = cluster.mac(dice.choice(cluster.stages)).worker, dice.uniform(0.0, 0.06)

    async def act() -> None:
        loading = asyncio.create_task(cluster.head.client.load_session(SESSION))
        await asyncio.sleep(late_s)
        os.kill(victim, signal.SIGKILL)
        with suppress(MaclusterError):
            await asyncio.wait_for(loading, ANSWER_S)

    at = monotonic()
    await act()
    until = at + ANSWER_S
    while True:
        try:
            await cluster.ready()
            await cluster.head.client.load_session(SESSION)
            break
        except MaclusterError:
            if monotonic() > until:
                raise
            await asyncio.sleep(AGAIN_S)
    tried = await bed.disturb(Point("decode", (ask,), 0.0, 0.0), nothing)
    return tried._replace(point=f"{late_s:.2f} s behind the beginning of the load", times=tried.times)


async def _wandering(bed: Bed, asks: Sequence[Ask]) -> Ask:
    """The first question whose answer wanders; answers in a short conversation may repeat themselves."""
    for ask in asks:
        with suppress(DoesNotWander):
            await bed.undisturbed.of(bed.cluster, ask)
            return ask
    raise DoesNotWander(", ".join(ask.prompt for ask in asks))


def _watch(mac: Mac) -> Watch:
    assert mac.watch
    return mac.watch
