"""Faults of the network: an unreachable Mac, a bad line, spoilt records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

from core.events import PlanLoaded
from tests.chaos.bed import Bed
from tests.chaos.trial import Moment, Tried, draw, is_linked, is_loss
from tests.support.taps import Fate

AWAY_S: Final = 6.0
BAD_S: Final = 4.0


async def half_open(bed: Bed, dice: random.Random) -> Tried:
    """Drop all packets to or from a Mac, without notice to any end."""
    assert bed.network
    return bed.without(bed.cluster.macs[-1], (await _away(bed, dice, bed.network.cut, bed.network.join))[0])


async def pulled(bed: Bed, dice: random.Random) -> Tried:
    """Pull a Mac's cable, and plug it in again."""
    return bed.without(bed.cluster.macs[-1], (await _away(bed, dice, *_cable(bed)))[0])


async def pulled_alone(bed: Bed, dice: random.Random) -> Tried:
    """Pull the cable of a Mac that the model needs: the answer waits for it."""
    tried, healed = await _away(bed, dice, *_cable(bed))
    wrong = tried.wrong if "wait" in bed.states else (*tried.wrong, f"It did not wait: {sorted(bed.states)}.")
    ready = next((h.at for h in bed.cluster.heard if h.at >= healed and isinstance(h.event, PlanLoaded)), healed)
    return tried._replace(wrong=wrong, times=tried.times._replace(back_s=ready - healed))


async def bad_line(bed: Bed, dice: random.Random, *, fate: Fate, moment: Moment) -> Tried:
    """Make a line bad; no Mac may be taken for lost."""
    assert bed.network
    wire = bed.network.wire

    async def act() -> None:
        wire.fate = fate

    async def attempt() -> Tried:
        try:
            tried = await bed.disturb(draw(moment, dice), act)
            await asyncio.sleep(BAD_S)
            return tried
        finally:
            wire.fate = Fate()

    return await bed.unmoved(attempt)


async def spoilt(bed: Bed, dice: random.Random, *, fault: str, moment: Moment) -> Tried:
    """Spoil a record on a data link: its receiver closes the link. `detected` is when it had."""
    meddler = bed.meddler
    assert meddler

    async def act() -> None:
        meddler.arm(fault)

    tried = await bed.disturb(draw(moment, dice), act)
    done = meddler.done()
    wrong = tried.wrong if done.faults == 1 else (*tried.wrong, f"{done.faults} records were spoilt, not one.")
    if not any(is_loss(h.event) for h in bed.cluster.heard):
        wrong = (*wrong, "A spoilt record was taken.")
    return tried._replace(wrong=wrong, times=tried.times._replace(detected_s=done.closed_s))


async def _away(
    bed: Bed, dice: random.Random, part: Callable[[], None], join: Callable[[], None]
) -> tuple[Tried, float]:
    """Make the last Mac unreachable for a while; returns the try and the time it was reachable again."""
    head, mac, healed = bed.cluster.macs[0], bed.cluster.macs[-1], [0.0]

    async def act() -> None:
        part()
        try:
            await asyncio.sleep(AWAY_S)
        finally:
            healed[0] = monotonic()
            join()

    tried = await bed.disturb(draw("decode", dice), act)
    await bed.cluster.linked(head)
    heard = (h.at for h in bed.cluster.heard if h.at >= healed[0] and is_linked(h.event, mac.name))
    linked = next(heard, healed[0])
    return tried._replace(times=tried.times._replace(back_s=linked - healed[0])), healed[0]


def _cable(bed: Bed) -> tuple[Callable[[], None], Callable[[], None]]:
    """Calls that pull the cable and plug it in."""
    assert bed.network
    return partial(bed.network.wire.plug, in_=False), partial(bed.network.wire.plug, in_=True)
