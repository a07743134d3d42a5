"""The run: clients ask all the time, Macs go and come back, the model is loaded again, and all is measured."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from core.bench.results import cores, system
from core.demo import DEMO_MODEL
from core.events import Recovery
from core.trust.api_keys import ApiKeys
from tests.chaos.cluster import READY_S, Cluster, running
from tests.chaos.mac import HOST, Setup
from tests.soak.answers import latencies, lost, median_and_p95
from tests.soak.report import Soaked, figures
from tests.soak.sampling import beside_s, held, processor_s
from tests.support.crowd import Crowd
from tests.support.waiting import until

KEY: Final = "sesame"
WARM: Final = 0.1  # of the run: caches fill first
SAMPLES: Final = 600
AWAY_S: Final = (2.0, 20.0)


class Load(NamedTuple):
    """Settings of a run: hours, concurrent clients, their rests, the share that leave, seconds between disturbances."""

    hours: float
    clients: int
    rest_s: float
    leaving: float
    apart_s: float
    seed: int


class Disturbances:
    """Disturbs a cluster as everyday use does. `seconds`: how long each disturbance took, by kind.

    While a Mac is replaced ("recoveries") and while a model is loaded ("loads"), each as (from, to), the API may answer
    that no model is loaded. A running request must be answered after a recovery, and ends with a load.
    """

    def __init__(self, cluster: Cluster, seed: int, say: Callable[[str], None]) -> None:
        self._cluster, self._say, self._dice = cluster, say, random.Random(seed)
        self.seconds = defaultdict[str, list[float]](list)
        self.recoveries = list[tuple[float, float]]()
        self.loads = list[tuple[float, float]]()

    async def go_on(self, end: float, apart_s: float) -> None:
        """Make one disturbance after the other until `end`; all Macs are up at the end."""
        for what in cycle((self.mac_comes_back, self.reload)):
            if monotonic() + apart_s > end:
                return
            await asyncio.sleep(apart_s)
            await what()

    async def mac_comes_back(self) -> None:
        """Kill the last Mac, wait until the answers continue without it, and start it again until it has layers."""
        cluster, mac = self._cluster, self._cluster.macs[-1]
        began = monotonic()
        mac.kill()

        def recovered(_: object) -> bool:
            states = [
                heard.event.state for heard in cluster.heard if heard.at > began and isinstance(heard.event, Recovery)
            ]
            return bool(states) and states[-1] == "running"

        await cluster.head.until(recovered, READY_S, "Going on without a Mac")
        assert mac.name not in cluster.stages
        self.recoveries.append((began, monotonic()))
        self._took("a Mac is killed: going on without it", began)
        await asyncio.sleep(self._dice.uniform(*AWAY_S))
        began = monotonic()
        await cluster.restart(mac)
        await cluster.linked(cluster.macs[0])
        self._took("it is started again: linked", began)
        await self._load("loaded over all of them again", monotonic())

    async def reload(self) -> None:
        """Load another model and return, as a person does."""
        began = monotonic()
        await self._cluster.head.client.unload()
        await self._load("the model is unloaded and loaded again", began)

    async def _load(self, what: str, began: float) -> None:
        await self._cluster.load()
        self.loads.append((began, monotonic()))
        self._took(what, began)

    def _took(self, what: str, began: float) -> None:
        self.seconds[what].append(monotonic() - began)
        self._say(f"{datetime.now(UTC):%H:%M:%S} {what}: {monotonic() - began:.1f} s")


async def soak(load: Load, say: Callable[[str], None]) -> Soaked:
    """Run a soak; returns its results. Raises MaclusterError if the Macs don't recover."""
    date, busy = datetime.now(UTC), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="mc-soak-") as folder:
        model = Path(folder) / DEMO_MODEL.name
        shutil.copytree(DEMO_MODEL, model)
        async with running(Setup(model, Path(folder))) as cluster:
            head = cluster.macs[0]
            ApiKeys(head.home.api_keys).add("soak", 1.0, KEY)
            crowd = Crowd(
                f"http://{HOST}:{head.api_port}/v1", KEY, load.seed, load.leaving, rest_s=load.rest_s, patience_s=1.0
            )
            await crowd.ask_alone()
            disturbances = Disturbances(cluster, load.seed, say)
            taken = defaultdict[str, list[tuple[float, float]]](list)
            began, computed = monotonic(), processor_s(head.node)
            end = began + 3600 * load.hours
            sampling = asyncio.create_task(_sample(cluster, taken, 3600 * load.hours / SAMPLES))
            try:
                await asyncio.gather(
                    crowd.ask_together(load.clients, end - monotonic()), disturbances.go_on(end, load.apart_s)
                )
                await until(lambda: not (cluster.head.now.running or cluster.head.now.batch.rows))
            finally:
                sampling.cancel()
                await crowd.close()
            hours = (monotonic() - began) / 3600
            computed = processor_s(head.node) - computed
            logs = [mac.home.log.read_text() for mac in cluster.macs]
    beside, after = taken.pop("beside"), os.getloadavg()[2]
    warm = began + WARM * 3600 * load.hours
    taken.update(latencies(crowd.told, beside))
    since = {
        name: [((at - began) / 3600, value) for at, value in samples if at >= warm] for name, samples in taken.items()
    }
    return Soaked(
        machine=f"{system()}, {cores()} cores, MLX's CPU build, load {busy:.1f} before, {after:.1f} at the end",
        date=f"{date:%Y-%m-%d %H:%M}",
        hours=hours,
        clients=load.clients,
        leaving=load.leaving,
        come=dict(crowd.come),
        wrong=crowd.wrong[:5],
        lost=lost(crowd.told, disturbances.loads, disturbances.recoveries)[:5],
        defects=[line for log in logs for line in log.splitlines() if "by a defect" in line][:5],
        done={what: len(seconds) for what, seconds in disturbances.seconds.items()},
        seconds={what: [round(one, 2) for one in sorted(seconds)] for what, seconds in disturbances.seconds.items()},
        own_ms={name: median_and_p95(laps) for name, laps in crowd.laps.items()},
        processor_ms_a_request=round(1000 * computed / max(1, len(crowd.told)), 1),
        longest_s=max((told.seconds for told in crowd.told), default=0.0),
        figures=list(figures(since)),
    )


async def _sample(cluster: Cluster, taken: dict[str, list[tuple[float, float]]], every_s: float) -> None:
    while True:
        for name, value in {**held(cluster.macs), "beside": await beside_s()}.items():
            taken[name].append((monotonic(), value))
        await asyncio.sleep(max(0.5, every_s))
