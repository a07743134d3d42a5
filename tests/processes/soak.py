"""`python -m tests.processes.soak --minutes 2 --clients 64 --leaving 0.33`: many clients at a time ask the API of three
simulated Macs, some of whom leave at random.

Prints as JSON what came of it. It ends well (status 0) where every answer that came is what comes where it is asked for
alone, all came, no row is left, nothing failed by a defect, and no process has more memory than after the first half
minute, but for a twentieth. `own_ms`: median of the node's own time of a request, and what 95 of 100 took
less than; `echo_ms`: the same of a byte to a process that does nothing and back, at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from time import perf_counter

import psutil

from core.demo import DEMO_MODEL
from core.trust.api_keys import ApiKeys
from tests.support.cluster import running_demo
from tests.support.crowd import Crowd
from tests.support.waiting import until
from tui.cli.demo import NAMES, Demo

KEY = "sesame"
WARM_S = 30.0
REST_S = 5.0
MOST_GROWN = 0.05


def memory_of(demo: Demo, macs: int) -> dict[str, int]:
    """Bytes of processes, by Mac and module."""
    found = Counter[str]()
    for index in range(macs):
        node = psutil.Process(demo.pid_of(index))
        for process in (node, *node.children(recursive=True)):
            words = process.cmdline()
            found[f"{NAMES[index]} {words[words.index('-m') + 1]}"] += process.memory_info().rss
    return found


def processor_s(demo: Demo) -> float:
    """What the node of the head has computed."""
    times = psutil.Process(demo.pid_of(0)).cpu_times()
    return float(times.user + times.system)


async def echo(times: list[float]) -> None:
    """A byte to a process that does nothing and back, in milliseconds, until it is cancelled."""
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    assert process.stdin
    assert process.stdout
    try:
        while True:
            began = perf_counter()
            process.stdin.write(b".")
            await process.stdout.readexactly(1)
            times.append(1000 * (perf_counter() - began))
            await asyncio.sleep(0.05)
    finally:
        process.stdin.close()


def median_and_p95(times: list[float]) -> list[float]:
    """Of what was measured; both 0 where nothing was."""
    ordered = sorted(times) or [0.0]
    return [round(ordered[int(part * len(ordered))], 2) for part in (0.5, 0.95)]


async def soak(minutes: float, clients: int, leaving: float, seed: int) -> dict[str, object]:
    """What came of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    async with running_demo(DEMO_MODEL, budgets := (4, 2, 2), api_ports=(port,)) as demo:
        ApiKeys(demo.home.api_keys).add("soak", 1.0, KEY)
        crowd = Crowd(f"http://127.0.0.1:{port}/v1", KEY, seed, leaving)
        memory = {"before": memory_of(demo, len(budgets))}
        await crowd.ask_alone()
        await crowd.ask_together(clients, WARM_S)
        await asyncio.sleep(REST_S)
        memory["warm"] = memory_of(demo, len(budgets))
        crowd.laps.clear()
        echoes = list[float]()
        echoing = asyncio.create_task(echo(echoes))
        before, told_before = processor_s(demo), crowd.come.total()
        await crowd.ask_together(clients, 60 * minutes)
        echoing.cancel()
        computed, told = processor_s(demo) - before, crowd.come.total() - told_before
        await until(lambda: not (demo.head.now.running or demo.head.now.batch.rows))
        await asyncio.sleep(REST_S)
        memory["after"] = memory_of(demo, len(budgets))
        logs = [(demo.home.root.parent / name / "node.log").read_text() for name in NAMES[: len(budgets)]]
        await crowd.close()
    return {
        "load": os.getloadavg()[0],
        "come": crowd.come,
        "wrong": crowd.wrong[:5],
        "longest_s": round(crowd.longest_s, 1),
        "own_ms": {name: median_and_p95(laps) for name, laps in crowd.laps.items()},
        "echo_ms": median_and_p95(echoes),
        "processor_ms_a_request": round(1000 * computed / max(1, told), 1),
        "memory_mib": {
            name: [round(memory[when].get(name, 0) / (1 << 20), 1) for when in memory] for name in memory["after"]
        },
        "grown": [
            name for name, size in memory["after"].items() if size > (1 + MOST_GROWN) * memory["warm"].get(name, 0)
        ],
        "defects": [line for log in logs for line in log.splitlines() if "by a defect" in line],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--leaving", type=float, default=0.33, help="how many of 1 leave before they are answered")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    told = asyncio.run(soak(args.minutes, args.clients, args.leaving, args.seed))
    print(json.dumps(told, indent=1))
    come = told["come"]
    assert isinstance(come, dict)
    sys.exit(bool(come.keys() - {"right", "left", "status 429"} or told["grown"] or told["defects"]))


if __name__ == "__main__":
    main()
