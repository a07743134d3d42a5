"""Faults of processes: killed, or stopped for a while."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final

from core.errors import MaclusterError
from core.requests.answers import AnswerId
from tests.chaos.bed import Bed
from tests.chaos.mac import Mac
from tests.chaos.trial import (
    ANSWER_S,
    MOMENTS,
    Times,
    Tried,
    answer_of,
    differences,
    draw,
    ended,
    nothing,
)
from tui.cli.load import loaded

LONG_S: Final = 10.0
CALM_S: Final = 3.0
LOADING_S: Final = 2.0


async def kill_worker(bed: Bed, dice: random.Random) -> Tried:
    """kill -9 of the worker of a stage."""
    return await bed.disturb(draw(dice.choice(MOMENTS), dice), _killing(bed.victim(dice).worker))


async def kill_own_worker(bed: Bed, dice: random.Random) -> Tried:
    """kill -9 of the head's worker."""
    return await bed.disturb(draw(dice.choice(MOMENTS), dice), _killing(bed.cluster.macs[0].worker))


async def kill_node(bed: Bed, dice: random.Random) -> Tried:
    """kill -9 of a member's node: its worker ends too, and the others continue without that Mac."""
    mac = bed.victim(dice)

    async def act() -> None:
        mac.kill()

    return await bed.disturb(draw(dice.choice(MOMENTS), dice), act)


async def kill_head(bed: Bed, dice: random.Random) -> Tried:
    """kill -9 of the head's node: started again, it knows the answer up to the last token on disk, and continues it."""
    cluster, point = bed.cluster, draw("decode", dice)
    (ask,) = point.asks
    expected = await bed.undisturbed.of(cluster, ask)
    cluster.forget()
    request = (await cluster.head.client.chat(ask.request)).request_id
    count = int(point.fraction * (ask.tokens - 16)) + 4
    await cluster.head.until(lambda _: len(answer_of(cluster.heard, request).tokens) >= count, ANSWER_S, "Writing")
    at = monotonic()
    cluster.macs[0].kill()
    shown = len(answer_of(cluster.heard, request).tokens)
    wrong = [text] if (text := await cluster.settled()) else []
    await cluster.restart(cluster.macs[0])
    (kept,) = [one for one in await cluster.head.client.unfinished() if one.request_id == request]
    if kept.tokens < shown:
        wrong.append(f"{shown} tokens were shown, {kept.tokens} are kept.")
    if not expected.text.startswith(kept.text):
        wrong.append("The text that was kept is another one.")
    await cluster.load()
    cluster.forget()
    await cluster.head.client.go_on(AnswerId(request_id=request))
    await ended(cluster.head, request)
    rest = answer_of(cluster.heard, request)
    tokens = (*expected.tokens[: kept.tokens], *rest.tokens)
    wrong += differences(rest._replace(tokens=tokens, text=kept.text + rest.text), expected, ask)
    first = next((h.at for h in cluster.heard if getattr(h.event, "index", None) == kept.tokens), None)
    times = Times(recovered_s=first - at if first else None)
    return Tried(f"token {shown} of {ask.tokens}, {kept.tokens} kept", ask.tokens, times, tuple(wrong))


async def kill_at_load(bed: Bed, dice: random.Random) -> Tried:
    """kill -9 of a worker, or of a member's node, during a load: the load ends in time, with a model or a reason, and
    later answers equal the undisturbed ones.
    """
    cluster, mac, late_s = bed.cluster, dice.choice(bed.cluster.macs), dice.uniform(0.0, LOADING_S)
    await cluster.head.client.unload()
    loading = asyncio.create_task(loaded(cluster.head, cluster.order()))
    await asyncio.sleep(late_s)
    at = monotonic()
    if mac is not cluster.macs[0] and dice.random() < 0.5:
        mac.kill()
    else:
        os.kill(mac.worker, signal.SIGKILL)
    with suppress(MaclusterError):
        await asyncio.wait_for(loading, ANSWER_S)
    times = Times(recovered_s=monotonic() - at)
    await bed.heal(whole=True)
    tried = await bed.disturb(draw("decode", dice), nothing)
    return tried._replace(point=f"{late_s:.2f} s behind the beginning of the load", times=times)


async def pause(bed: Bed, dice: random.Random, *, seconds: float) -> Tried:
    """SIGSTOP of a member's node and worker, SIGCONT after `seconds`."""
    return await _pause(bed, dice, bed.victim(dice), seconds)


async def _pause(bed: Bed, dice: random.Random, mac: Mac, seconds: float) -> Tried:
    async def act() -> None:
        mac.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            mac.signal(signal.SIGCONT)

    return await bed.disturb(draw("decode", dice), act)


async def short_pause(bed: Bed, dice: random.Random) -> Tried:
    """Pause a Mac for a second; it may not be taken for lost."""
    return await bed.unmoved(partial(pause, bed, dice, seconds=1.0))


async def long_pause(bed: Bed, dice: random.Random) -> Tried:
    """Pause a Mac for so long that the others continue: its late messages are refused, and it joins again."""
    mac = bed.victim(dice)
    tried = bed.without(mac, await _pause(bed, dice, mac, LONG_S))
    await bed.cluster.linked(bed.cluster.macs[0])
    late = await bed.disturb(draw("decode", dice), nothing)  # late messages of the paused Mac may come here
    return tried._replace(wrong=(*tried.wrong, *late.wrong))


async def pause_worker(bed: Bed, dice: random.Random) -> Tried:
    """SIGSTOP of a stage's worker alone for a second: its node still sends beats."""

    async def act() -> None:
        worker = bed.victim(dice).worker
        os.kill(worker, signal.SIGSTOP)
        try:
            await asyncio.sleep(1.0)
        finally:
            os.kill(worker, signal.SIGCONT)

    return await bed.unmoved(lambda: bed.disturb(draw("decode", dice), act))


async def wrong_clocks(bed: Bed, dice: random.Random) -> Tried:
    """Clocks ten years ahead and back, and flapping Bonjour: the answer is unchanged, a killed worker is replaced."""
    calm = await bed.unmoved(lambda: bed.disturb(draw("decode", dice), partial(asyncio.sleep, CALM_S)))
    tried = await kill_worker(bed, dice)
    return tried._replace(wrong=(*calm.wrong, *tried.wrong))


def _killing(pid: int) -> Callable[[], Awaitable[None]]:
    async def act() -> None:
        os.kill(pid, signal.SIGKILL)

    return act
