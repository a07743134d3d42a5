"""`python -m tests.network.data_ports --rate 10000 --seconds 20`, as root: loads models under a flood.

A machine connects to every port of the workers, from 16 addresses, in its own network namespace. Prints as JSON how
many loads stood, how long they took, and the flood's counts. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import suppress

from core.demo import DEMO_MODEL
from core.errors import MaclusterError
from tests.attacks.victim import port_of
from tests.support.cluster import running_demo

SAYS = {"nothing": "", "hello": "160301020001"}


async def loads(rate: int, hosts: int, says: str, seconds: float) -> dict[str, object]:
    """Load until the flood is over."""
    async with running_demo(DEMO_MODEL, (64, 32, 16)) as demo:
        nodes = ",".join(str(port_of(demo.pid_of(index))) for index in range(3))
        options = {"--but": nodes, "--churn": rate, "--hosts": hosts, "--says": SAYS[says], "--seconds": seconds}
        words = [f"{name}={value}" for name, value in options.items()]
        flood = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.attacks.flood", *words), stdout=subprocess.PIPE
        )
        over = asyncio.create_task(flood.communicate())
        took, problems = list[float](), list[str]()
        while not over.done():
            started = time.monotonic()
            try:
                await demo.load()
                took.append(round(time.monotonic() - started, 2))
            except MaclusterError as error:
                problems.append(error.what)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(over), 0.5)
        return {"loaded_s": took, "failed": problems, "flood": json.loads((await over)[0])}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--says", choices=sorted(SAYS), default="nothing")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(asyncio.run(loads(args.rate, args.hosts, args.says, args.seconds)), indent=1))
        return
    name = f"mc-data-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        words = [sys.executable, "-m", "tests.network.data_ports", *sys.argv[1:], "--inside"]
        sys.exit(subprocess.run(["ip", "netns", "exec", name, *words], check=False).returncode)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


if __name__ == "__main__":
    main()
