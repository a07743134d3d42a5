"""Rings of real workers on this machine: for mlx-lm's own functions, with the head in this process, and for requests.

Workers and sealed links are those of a cluster; no node is needed, and a running one is not disturbed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from core.engine.requests import Request
from core.engine.steps import TRY_S
from core.errors import error_from
from core.events import Plan, Topology
from core.link.data_plane import listen
from core.link.network_paths import NetworkPath
from core.link.rekey_limits import KEY_LIMITS
from core.local.bare_worker import HOST, BareWorker, load_workers
from core.local.macs import LocalMacs, make_macs
from core.local.plans import digest_of, plan_of
from core.models.files.model_folder import read_folder
from core.models.metal import obey_device
from core.models.slicing.loading import load_slice
from core.plan.stage_roles import role_of
from core.plan.topology import DEFAULT_TOPOLOGY
from core.sampling_options import Sampling
from core.worker.main import row_bytes
from core.worker.messages import AnswerDone, Connect, Linked, Load, Token
from core.worker.neighbours import Neighbours
from core.worker.pipeline import Pipeline
from core.worker.ring import Ring
from core.worker.ring_forward import RingForward
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter

LINK_S: Final = 30.0
ANSWER_S: Final = 300.0


@contextmanager
def local_ring(model_dir: Path, cuts: Sequence[int], topology: Topology = DEFAULT_TOPOLOGY) -> Iterator[RingForward]:
    """Split the model in `model_dir` before the layers `cuts` and start a worker for each stage after the first.

    Pass the result to `RingModel`. The head's layers run in this process.

        with local_ring(folder, cuts=[7, 12]) as stages:
            logits = RingModel(stages)(tokens)

    Raises ModelError for a model that can't be loaded, IllegalCut where it can't be cut.
    """
    obey_device()
    with ExitStack() as stack:
        macs = make_macs(Path(stack.enter_context(TemporaryDirectory(prefix="macluster-ring-"))), len(cuts) + 1)
        plan = plan_of(model_dir.name, read_folder(model_dir).layout().layers, cuts, macs, topology)
        listener = stack.enter_context(listen(HOST))
        workers = [stack.enter_context(closing(BareWorker(index))) for index in range(1, len(plan.stages))]
        load_workers(
            dict(zip(workers, macs.identities[1:], strict=True)),
            {worker: Load(plan=plan, index=worker.index, directory=str(model_dir)) for worker in workers},
        )
        ports = [*(worker.port for worker in workers), int(listener.getsockname()[1])]
        told = _connects(plan, macs, ports)
        for worker in workers:
            worker.send(told[worker.index])
        meter = StageMeter(0)
        own = role_of(plan, 0)
        layers = load_slice(
            read_folder(model_dir), plan.head.start, plan.head.stop, embed=own.embeds, output=own.outputs
        )
        neighbours = Neighbours(told[0], 0, listener, macs.identities[0], row_bytes=row_bytes(plan, 0, layers))
        ring = stack.enter_context(closing(Ring(neighbours, meter, KEY_LIMITS)))
        pipeline = Pipeline(LoadedStage(layers, meter), plan, TRY_S)
        pipeline.link(ring)
        for worker in workers:
            worker.expect(Linked, LINK_S)
        yield RingForward(pipeline)


@contextmanager
def requests_ring(model_dir: Path, cuts: Sequence[int]) -> Iterator[BareWorker]:
    """A ring whose head is a worker too, without drafts; yields the head, for `ask`. Cuts () make a ring of one."""
    with ExitStack() as stack:
        macs = make_macs(Path(stack.enter_context(TemporaryDirectory(prefix="macluster-ring-"))), len(cuts) + 1)
        plan = plan_of(model_dir.name, read_folder(model_dir).layout().layers, cuts, macs, DEFAULT_TOPOLOGY)
        workers = [stack.enter_context(closing(BareWorker(index))) for index in range(len(plan.stages))]
        load_workers(
            dict(zip(workers, macs.identities, strict=True)),
            {worker: Load(plan=plan, index=worker.index, directory=str(model_dir), draft=0) for worker in workers},
        )
        if cuts:
            ports = [worker.port for worker in (*workers[1:], workers[0])]
            for worker, told in zip(workers, _connects(plan, macs, ports), strict=True):
                worker.send(told)
            for worker in workers:
                worker.expect(Linked, LINK_S)
        yield workers[0]


def _connects(plan: Plan, macs: LocalMacs, ports: Sequence[int]) -> list[Connect]:
    """The links of each stage; `ports` are those of the stages after it."""
    cluster, ways = macs.cluster.encode(), (NetworkPath(HOST),)
    digest = digest_of(plan)
    return [Connect(plan=plan, digest=digest, cluster=cluster, ways=ways, next_port=port) for port in ports]


class TimedAnswer(NamedTuple):
    """Token ids, and when each came, in seconds of `perf_counter`."""

    tokens: tuple[int, ...]
    times: tuple[float, ...]


def ask(head: BareWorker, prompt: Sequence[int], max_tokens: int) -> TimedAnswer:
    """Decode up to `max_tokens` greedy tokens. Raises the answer's error, WorkerDied or WorkerError."""
    head.send(
        Request(request_id=secrets.token_hex(16), tokens=list(prompt), max_tokens=max_tokens, sampling=Sampling())
    )
    came: list[tuple[int, float]] = []
    while True:
        at, report = head.next(ANSWER_S)
        if isinstance(report, Token):
            came.append((report.token, at))
        elif isinstance(report, AnswerDone):
            if report.problem:
                raise error_from(report.problem)
            return TimedAnswer(tuple(token for token, _ in came), tuple(at for _, at in came))
