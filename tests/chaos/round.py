"""A round: one bed after the other, each with its faults, one try after the other."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Final, Literal, NamedTuple

import msgspec

from core.demo import DEMO_MODEL
from core.errors import MaclusterError
from tests.chaos.bed import NEEDS_ROOT, RANKS, Bed, Where, bed
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.report import Outcome, Round
from tests.chaos.trial import Undisturbed
from tests.support.taps import can_network

APART: Final = 1000  # between the seeds of two faults

Say = Callable[[str], None]


class Wanted(NamedTuple):
    """The chosen faults (all if none is named) and number of tries (the round's own by default)."""

    kind: Literal["full", "short", "kills"] = "full"
    only: tuple[str, ...] = ()
    tries: int | None = None
    seed: int = 0

    @property
    def faults(self) -> Iterator[tuple[Fault, range]]:
        """Each fault with the seeds of its tries; a single fault starts with the round's own seed."""
        for number, fault in enumerate(FAULTS):
            first = self.seed + (0 if len(self.only) == 1 else number * APART)
            many = {"full": fault.full, "short": fault.short or len(self.only), "kills": fault.kills}
            count = many[self.kind] and (self.tries or many[self.kind])
            if count and (fault.name in self.only or not self.only):
                yield fault, range(first, first + count)


async def run_round(wanted: Wanted, say: Say) -> Round:
    """Run all tries of a round; returns the report."""
    began, at = datetime.now(UTC), monotonic()
    say(f"{wanted.kind} round, seed {wanted.seed}")
    outcomes: list[Outcome] = []
    skipped: list[tuple[str, str]] = []
    whole, shared = Undisturbed(), Undisturbed()  # of the demo's model, and of the model that ranks share
    with tempfile.TemporaryDirectory(prefix="mc-chaos-") as folder:
        model = Path(folder) / DEMO_MODEL.name
        shutil.copytree(DEMO_MODEL, model)
        for where, group in groupby(wanted.faults, lambda each: each[0].where):
            faults = list(group)
            if where in NEEDS_ROOT and (why := can_network()):
                skipped += [(fault.what, why) for fault, _ in faults]
                say(f"skipped, {why}: {', '.join(fault.name for fault, _ in faults)}")
                continue
            trying = Trying(where, model, Path(folder), shared if where in RANKS else whole, wanted.seed)
            try:
                for fault, seeds in faults:
                    for seed in seeds:
                        outcomes.append(await trying.once(fault, seed))
                        say(outcomes[-1].line)
            finally:
                await trying.end()
    return Round(
        kind=wanted.kind,
        seed=wanted.seed,
        began=f"{began:%Y-%m-%d}",
        seconds=monotonic() - at,
        load=os.getloadavg(),
        outcomes=tuple(outcomes),
        skipped=tuple(skipped),
    )


class Trying:
    """Tries on one bed; a new bed replaces one that can't be repaired."""

    def __init__(self, where: Where, model: Path, folder: Path, undisturbed: Undisturbed, seed: int) -> None:
        self._where, self._model, self._folder = where, model, folder
        self._undisturbed, self._seed = undisturbed, seed
        self._stack = AsyncExitStack()
        self._bed: Bed | None = None
        self._beds = 0

    async def once(self, fault: Fault, seed: int) -> Outcome:
        """Run one try of `fault`."""
        made = self._bed
        try:
            made = await self._ready(whole=fault.whole)
            tried = await fault.run(made, random.Random(seed))
            left = await made.cluster.settled()
        except (MaclusterError, AssertionError, LookupError, OSError, ValueError) as error:
            failed = Outcome(fault=fault.name, seed=seed, wrong=(f"{type(error).__name__}: {error}",))
            return _with_evidence(failed, made)
        wrong = (*tried.wrong, left) if left else tried.wrong
        outcome = Outcome(
            fault=fault.name,
            seed=seed,
            point=tried.point,
            tokens=tried.tokens,
            again=tried.again,
            **tried.times._asdict(),
            wrong=wrong,
        )
        return _with_evidence(outcome, made) if wrong else outcome

    async def end(self) -> None:
        """Take the bed down."""
        self._bed = None
        await self._stack.aclose()

    async def _ready(self, *, whole: bool) -> Bed:
        if self._bed:
            try:
                await self._bed.heal(whole=whole)
                return self._bed
            except (MaclusterError, OSError):
                await self.end()
        self._beds += 1
        folder = self._folder / f"{self._where}{self._beds}"
        self._bed = await self._stack.enter_async_context(
            bed(self._where, self._model, folder, self._undisturbed, self._seed)
        )
        return self._bed


def _with_evidence(outcome: Outcome, made: Bed | None) -> Outcome:
    logs: Sequence[str] = [f"{mac.name}:\n{mac.log}" for mac in made.cluster.macs] if made else []
    return msgspec.structs.replace(outcome, evidence="\n".join(logs))
