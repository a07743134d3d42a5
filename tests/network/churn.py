"""`python -m tests.network.churn --minutes 60 --seed 1`, as root: Macs join and leave while the first one answers.

They run in network namespaces on one bridge, and leave in good order or by loss of power or cable. Prints as JSON the
actions, the number of right answers, the faults, and the nodes' standard error. The status is 0 if no answer was wrong,
no node ended by itself or complained, and all were linked with all at the end. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import psutil

from core.errors import MaclusterError
from core.events import FinishReason, Recovery
from core.requests.plans import LoadRequest
from core.settings import Home
from tests.support.cluster import Answer, ask
from tests.support.lan import inside, ip, lan
from tests.support.maker import make_model
from tests.support.nodes import paired_home
from tui.cli.watch import Watch

PROMPT = "tell me about hops"
TOKENS = 48
START_S = 120.0
LINKED_S = 180.0
QUIT_S = 120.0  # one that is still starting on a busy machine ends after its start
ENOUGH: FinishReason = "length"


class Mac:
    """A Mac that comes and goes; its state folder stays."""

    def __init__(self, number: int, namespace: str, address: str, home: Home, model: Path) -> None:
        self.number, self.namespace, self.home = number, namespace, home
        self._complaints = home.root.parent / f"{number}.stderr"
        self._command = inside(
            namespace,
            *(sys.executable, "-m", "core.node", "--home", str(home.root), "--name", f"mac{number}", "--host", address),
            *("--budget", "8", "--chip", "M1", "--models", str(model), "--until-eof", "--no-spare-worker"),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.ended = list[str]()

    @property
    def is_up(self) -> bool:
        """Whether its node runs; reports one that ended by itself."""
        if self._process and self._process.poll() is not None:
            self._tell("ended by itself", self._process.returncode)
            self._process = None
        return self._process is not None

    def _tell(self, how: str, status: int) -> None:
        said = self.home.log.read_text("utf-8").splitlines()[-5:] if self.home.log.exists() else []
        self.ended.append(f"{how}, status {status}: {said}")

    @property
    def rss_bytes(self) -> int:
        """Resident memory of its node."""
        assert self._process
        return int(psutil.Process(self._process.pid).memory_info().rss)

    @property
    def complaints(self) -> str:
        """Standard error of its nodes."""
        return self._complaints.read_text("utf-8", "replace") if self._complaints.exists() else ""

    @property
    def defects(self) -> list[str]:
        """Lines of its log about defects."""
        lines = self.home.log.read_text("utf-8").splitlines() if self.home.log.exists() else []
        return [line for line in lines if "defect" in line]

    def start(self) -> None:
        """Start its node."""
        with self._complaints.open("ab") as said:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=said, stderr=said)

    def quit(self) -> None:
        """End its node in good order."""
        process, self._process = self._process, None
        assert process
        assert process.stdin
        process.stdin.close()
        try:
            status = process.wait(QUIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if status:
            self._tell("did not end well", status)

    def kill(self) -> None:
        """Kill node and worker at once, as a power cut does."""
        process, self._process = self._process, None
        assert process
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait()

    def cable(self, state: str) -> None:
        """Pull the cable ("down") or plug it in ("up")."""
        ip("-n", self.namespace, "link", "set", "eth0", state)


class Run:
    """The Macs, their faults, and the answers of the first one meanwhile."""

    def __init__(self, macs: list[Mac], seed: int) -> None:
        self._macs, self._dice = macs, random.Random(seed)
        self.done, self.answers, self.problems = Counter[str](), Counter[str](), Counter[str]()
        self.stages = Counter[int]()
        self._expected: list[int] | None = None

    async def act(self, until: float) -> None:
        """Make one change after the other; all Macs are up at the end."""
        while time.monotonic() < until:
            mac = self._dice.choice(self._macs[1:])
            what = self._dice.choice(("quit", "kill", "cable")) if mac.is_up else "start"
            self.done[what] += 1
            if what == "cable":
                mac.cable("down")
                await asyncio.sleep(self._dice.uniform(0.5, 8.0))
                mac.cable("up")
                ip("-n", mac.namespace, "route", "replace", "224.0.0.0/4", "dev", "eth0")
            else:
                await asyncio.to_thread(getattr(mac, what))
            await asyncio.sleep(self._dice.uniform(0.5, 6.0))
        for mac in self._macs:
            if not mac.is_up:
                mac.start()

    async def answer(self, watch: Watch, model: str) -> None:
        """Ask again and again, and load whenever nothing is loaded."""
        while True:
            try:
                recovery = watch.now.recovery
                if watch.now.plan_status != "ready" and (recovery is None or recovery.state == "parked"):
                    await watch.client.load(LoadRequest(model=model))
                    await watch.until(lambda w: w.now.plan_status in ("ready", "broken"), START_S, "Loading")
                self.stages[len(watch.now.plan.stages) if watch.now.plan else 0] += 1
                self._judge(await ask(watch, PROMPT, TOKENS))
            except MaclusterError as error:
                self.problems[f"{type(error).__name__}: {error.what}"] += 1
                await asyncio.sleep(0.5)

    def _judge(self, answer: Answer) -> None:
        whole = answer.done.finish_reason == ENOUGH
        if self._expected is None and whole:
            self._expected = answer.tokens
        right = self._expected is None or answer.tokens == self._expected[: len(answer.tokens)]
        self.answers[("right" if whole else "a beginning") if right else "WRONG"] += 1
        if answer.done.problem:
            self.problems[f"answer: {answer.done.problem.what}"] += 1


def linked(watch: Watch) -> int:
    """The number of Macs it is linked with."""
    return sum(not p.is_self and p.state == "connected" for p in watch.now.peers)


async def churn(macs: list[Mac], minutes: float, seed: int, model: str) -> dict[str, object]:
    """Run the churn; returns the JSON that `main` prints."""
    run = Run(macs, seed)
    for mac in macs:
        mac.start()
    async with AsyncExitStack() as stack:
        head = await stack.enter_async_context(Watch(macs[0].home))
        await head.attached(START_S, lambda: macs[0].is_up)
        await head.until(lambda w: linked(w) == len(macs) - 1, LINKED_S, "Linking the Macs")
        answering = asyncio.create_task(run.answer(head, model))
        before, started = macs[0].rss_bytes, time.monotonic()
        await run.act(started + 60 * minutes)
        back = time.monotonic()
        apart = list[str]()
        for mac in macs:
            watch = await stack.enter_async_context(Watch(mac.home))
            try:
                await watch.attached(START_S, lambda mac=mac: mac.is_up)  # type: ignore[misc]
                await watch.until(lambda w: linked(w) == len(macs) - 1, LINKED_S, "Linking all")
            except MaclusterError as error:
                apart.append(f"mac{mac.number}: {linked(watch)} links: {error.what}")
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        return {
            "minutes": minutes,
            "seed": seed,
            "done": run.done,
            "answers": run.answers,
            "over_so_many_macs": run.stages,
            "recoveries": sum(isinstance(e, Recovery) and e.state == "running" for e in head.seen),
            "problems": run.problems,
            "all_linked_after_s": round(time.monotonic() - back, 1),
            "apart": apart,
            "ended": {mac.number: mac.ended for mac in macs if mac.ended},
            "complaints": {mac.number: mac.complaints[-2000:] for mac in macs if mac.complaints},
            "defects": {mac.number: mac.defects[-5:] for mac in macs if mac.defects},
            "head_grew_by_mib": round((macs[0].rss_bytes - before) / (1 << 20), 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--macs", type=int, default=10)
    args = parser.parse_args()
    names = [f"mc{os.getpid() % 100_000}m{number}" for number in range(args.macs)]
    with tempfile.TemporaryDirectory(prefix="mc-") as folder, lan(*names) as addresses:
        model = Path(folder) / "toy"
        make_model(model, "llama")
        macs = [
            Mac(number, name, addresses[name], paired_home(Path(folder), number, args.macs), model)
            for number, name in enumerate(names)
        ]
        try:
            told = asyncio.run(churn(macs, args.minutes, args.seed, "toy"))
        finally:
            for mac in macs:
                if mac.is_up:
                    mac.quit()
    print(json.dumps(told, indent=1))
    bad = ("apart", "ended", "complaints", "defects")
    answers = told["answers"]
    assert isinstance(answers, Counter)
    sys.exit(bool(answers["WRONG"] or not answers["right"] or any(told[name] for name in bad)))


if __name__ == "__main__":
    main()
