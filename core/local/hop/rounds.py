"""Rounds of hops there and back on every lane, which take turns so that noise hits all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from core.local.hop.turns import HopTurn, LanesOf, Spent, array_lanes, echo, lead, play
from core.local.macs import make_macs
from core.local.second_process import second_process

MAX_CPU_RATIO: Final = 4.0  # CPU of a sealed hop over a plain one
WARM_UP_HOPS: Final = 50


class LaneTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of one lane. Times in microseconds per hop."""

    cpu_us: tuple[float, float]  # of the leader and the echo, all threads
    rtt_us: float  # median round trip
    parts_us: dict[str, float] = {}  # wall clock; TLS is inside send

    @property
    def side_us(self) -> float:
        return sum(self.cpu_us) / 2


Round = dict[str, LaneTurn]  # by lane


def play_rounds(rounds: int, hops: int, lanes_of: LanesOf = array_lanes) -> list[Round]:
    """Play `rounds` rounds of `hops` hops on every lane. Raises LinkError or WorkerError."""
    with TemporaryDirectory(prefix="macluster-hop-") as folder, second_process(partial(echo, lanes_of)) as other:
        macs = make_macs(Path(folder), 2)
        with lead(other, macs, lanes_of) as lanes:

            def one_round(hops: int) -> Round:
                return {lane: _turn(*play(other, lanes, HopTurn(lane, hops))) for lane in lanes}

            one_round(WARM_UP_HOPS)
            return [one_round(hops) for _ in range(rounds)]


def _turn(lead: Spent, echo: Spent) -> LaneTurn:
    parts = {name: (spent + echo.parts_us[name]) / 2 for name, spent in lead.parts_us.items()}
    return LaneTurn(cpu_us=(lead.cpu_us, echo.cpu_us), rtt_us=median(lead.rtt_us), parts_us=parts)


def cpu_ratio(rounds: Sequence[Round]) -> float:
    """CPU of a sealed hop over a plain one: the median of the ratios within a round."""
    return median(turns["sealed"].side_us / turns["raw"].side_us for turns in rounds)
