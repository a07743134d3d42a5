"""A ring of bare workers on this machine, without nodes: for benches, and for tests that want to get between stages."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple

import msgspec

from core.bench.macs import Macs, make_macs
from core.bench.worker import BareWorker
from core.errors import error_from
from core.events import Plan, Stage
from core.link.wear import KEY_LIMITS, KeyUse
from core.models.layout import read_layout
from core.settings import DEFAULT_CONTEXT, PREFILL_CHUNK
from core.worker.messages import (
    Broken,
    Connect,
    Done,
    Generate,
    Join,
    Linked,
    Listening,
    Load,
    Loaded,
    Samples,
    StageSample,
    Token,
)

HOST: Final = "127.0.0.1"
START_S: Final = 60.0
LOAD_S: Final = 300.0
LINK_S: Final = 30.0
ANSWER_S: Final = 300.0

Reroute = Callable[[int, int], int]


class Answer(NamedTuple):
    """One answer of a ring. `done.problem` says why it broke, if it did.

    `samples` are the stages' own figures at its end, in ring order, none on a ring of one. `times` are the moments at
    which its tokens came out of the head's pipe, in seconds of `perf_counter`.
    """

    tokens: tuple[int, ...]
    done: Done
    samples: tuple[StageSample, ...]
    times: tuple[float, ...]


class WorkerRing:
    """Workers that hold all layers of a model; `plan` is the one they are linked by."""

    def __init__(
        self, plan: Plan, workers: Sequence[BareWorker], macs: Macs, reroute: Reroute | None, key_limits: KeyUse
    ) -> None:
        self.plan = plan
        self.workers = tuple(workers)
        self._macs = macs
        self._reroute = reroute
        self._key_limits = key_limits

    def relink(self) -> None:
        """Link all stages anew, under the next plan generation. Raises the error that a stage reports, WorkerError."""
        self.plan = msgspec.structs.replace(self.plan, plan_gen=self.plan.plan_gen + 1)
        self.link()

    def link(self) -> None:
        """Link the stages by `plan`; a ring of one has no links. Raises the error that a stage reports, WorkerError."""
        if len(self.workers) == 1:
            return
        ports = [self._reroute(w.index, w.port) if self._reroute else w.port for w in self.workers]
        for index, worker in enumerate(self.workers):
            next_port = ports[(index + 1) % len(ports)]
            worker.send(
                Connect(
                    plan=self.plan,
                    cluster=self._macs.cluster.encode(),
                    next_host=HOST,
                    next_port=next_port,
                    key_limits=self._key_limits,
                )
            )
        deadline = perf_counter() + LINK_S
        for worker in self.workers:
            self._await_links(worker, deadline)

    def _await_links(self, worker: BareWorker, deadline: float) -> None:
        while True:
            report = worker.next(deadline - perf_counter()).report
            if not isinstance(report, Linked | Broken) or report.plan_gen != self.plan.plan_gen:
                continue  # of the links before
            if isinstance(report, Broken):
                raise error_from(report.problem)
            return

    def generate(
        self,
        tokens: Sequence[int],
        *,
        max_tokens: int = 16,
        temperature: float = 0.0,
        top_p: float = 0.0,
        seed: int | None = None,
        eos: Sequence[int] = (),
        timeout_s: float = ANSWER_S,
        on_token: Callable[[Token], None] | None = None,
    ) -> Answer:
        """The answer to a prompt of token ids; `on_token` is called as they come. An answer that breaks is returned
        too, with its problem. Raises WorkerDied if the head ends, WorkerError if it is not done within `timeout_s`.
        """
        asked = Generate(
            request_id=secrets.token_hex(16),
            tokens=list(tokens),
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
            eos=list(eos),
        )
        self.workers[0].send(asked)
        return self._collect(asked.request_id, perf_counter() + timeout_s, on_token)

    def _collect(self, request_id: str, deadline: float, on_token: Callable[[Token], None] | None) -> Answer:
        tokens: list[int] = []
        times: list[float] = []
        samples: tuple[StageSample, ...] = ()
        while True:
            at, report = self.workers[0].next(deadline - perf_counter())
            if getattr(report, "request_id", "") != request_id:
                continue  # what is left of an answer or a link before
            match report:
                case Token():
                    tokens.append(report.token)
                    times.append(at)
                    if on_token:
                        on_token(report)
                case Samples():
                    samples = tuple(report.stages)
                case Done():
                    return Answer(tuple(tokens), report, samples, tuple(times))


@contextmanager
def worker_ring(
    model_dir: Path, cuts: Sequence[int], *, reroute: Reroute | None = None, key_limits: KeyUse = KEY_LIMITS
) -> Iterator[WorkerRing]:
    """A ring over the model in `model_dir`, linked and ready; its workers and keys are gone afterwards.

    `cuts` are the first layers of all stages but the head's: none is a ring of one, (3, 7) is three stages.
    `reroute(stage, port)` gives the port that the stage before dials in place of the stage's own, so that a proxy can
    stand between them; it is asked anew for every link. All links get new keys once one has carried `key_limits`.

    Raises what a stage reports, WorkerError or its kinds.
    """
    layers = read_layout(model_dir).layers
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="macluster-ring-")))
        macs = make_macs(folder, len(cuts) + 1)
        plan = _plan(model_dir.name, layers, cuts, macs)
        workers = [stack.enter_context(closing(BareWorker(index))) for index in range(len(plan.stages))]
        for worker, mac in zip(workers, macs.identities, strict=True):
            worker.send(Join(identity_folder=str(mac.key_path.parent), passphrase=mac.passphrase, host=HOST))
        for worker in workers:
            worker.port = worker.expect(Listening, START_S).port
            worker.send(Load(plan=plan, index=worker.index, directory=str(model_dir)))
        for worker in workers:
            worker.expect(Loaded, LOAD_S)
        ring = WorkerRing(plan, workers, macs, reroute, key_limits)
        ring.link()
        yield ring


def _plan(model: str, layers: int, cuts: Sequence[int], macs: Macs) -> Plan:
    stages = tuple(
        Stage(
            device_id=mac.text_id,
            peer=f"mac-{index}",
            start=start,
            stop=stop,
            weight_bytes=0,
            kv_bytes=0,
            budget_bytes=0,
        )
        for index, (mac, (start, stop)) in enumerate(zip(macs.identities, pairwise((0, *cuts, layers)), strict=True))
    )
    return Plan(
        plan_gen=1,
        model=model,
        fingerprint="",
        topology="private" if cuts else "single",
        layers=layers,
        context=DEFAULT_CONTEXT,
        chunk=PREFILL_CHUNK,
        stages=stages,
        output=stages[0].device_id,
    )
