"""A ring of bare workers on this machine, without nodes: for benches, and for tests that want to get between stages."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple, TypedDict, Unpack

import msgspec

from core.engine.requests import Request
from core.engine.steps import TRY_S
from core.errors import error_from
from core.events import GroupKind, Parallelism, Plan, Prefill, Sight, Stage, Topology, WireType
from core.link.network_paths import NetworkPath
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.local.bare_worker import Arrival, BareWorker
from core.local.macs import LocalMacs, make_macs
from core.models.files.model_folder import read_folder
from core.plan.prefill import prefill_plan
from core.plan.topology import DEFAULT_TOPOLOGY, LONE_MAC_TOPOLOGY, TOPOLOGIES, TOPOLOGY_OF_RANKS
from core.requests.trace import PhaseTurn
from core.sampling_options import Sampling
from core.settings import MAX_DRAFT, PREFILL_CHUNK
from core.trust.identity import Identity
from core.worker.messages import (
    AnswerDone,
    Cancel,
    Connect,
    ConnectPrefill,
    Failed,
    GroupBroken,
    Join,
    LinkBroken,
    Linked,
    Listening,
    Load,
    Loaded,
    Prefilled,
    PrefillLinked,
    Samples,
    StageSample,
    Token,
    Trace,
    Traced,
    TracedPhases,
    TracePhases,
    TraceSpan,
)

HOST: Final = "127.0.0.1"
START_S: Final = 120.0
LOAD_S: Final = 300.0
LINK_S: Final = 30.0
ANSWER_S: Final = 300.0
CONTEXT: Final = 65_536
GREEDY: Final = Sampling()

Reroute = Callable[[int, int], int]


class Settings(TypedDict, total=False):
    """What a test or a bench sets in the plan."""

    context: int
    chunk: int
    window: int
    adapts: bool
    wire: WireType | None
    rows: int
    kv_bits: int | None
    batched: bool
    mirror_bytes: int


class RingAnswer(NamedTuple):
    """One answer of a ring. `done.problem` says why it broke, if it did.

    `samples` are the stages' own figures, the newest when it ended, in ring order, none on a ring of one. `times` are
    the moments at which its tokens came out of the head's pipe, in seconds of `perf_counter`; `told` is all that the
    head said of them.
    """

    tokens: tuple[int, ...]
    done: AnswerDone
    samples: tuple[StageSample, ...]
    times: tuple[float, ...]
    told: tuple[Token, ...]


class WorkerRing:
    """Workers that hold all layers of a model; `plan` is the one they are linked by. The worker `beside` them, if there
    is one, reads prompts.
    """

    def __init__(
        self,
        plan: Plan,
        workers: Sequence[BareWorker],
        macs: LocalMacs,
        reroute: Reroute | None,
        key_limits: KeyUse,
        beside: BareWorker | None = None,
    ) -> None:
        self.plan = plan
        self.workers = tuple(workers)
        self.beside = beside
        self._macs = macs
        self._reroute = reroute
        self._key_limits = key_limits
        self._unread: deque[Arrival] = deque()

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
                    ways=(NetworkPath(HOST),),
                    next_port=next_port,
                    key_limits=self._key_limits,
                )
            )
        deadline = perf_counter() + LINK_S
        for worker in self.workers:
            self._await_links(worker, deadline)

    def link_beside(self) -> None:
        """Link the head and the worker beside the ring. Raises the error that it reports, WorkerError."""
        assert self.beside
        head, order = (
            self.workers[0],
            Connect(
                plan=prefill_plan(self.plan, 1),
                cluster=self._macs.cluster.encode(),
                ways=(NetworkPath(HOST),),
                next_port=self.beside.port,
                key_limits=self._key_limits,
            ),
        )
        self.beside.send(msgspec.structs.replace(order, next_port=head.port))
        head.send(ConnectPrefill(**msgspec.structs.asdict(order)))
        self.beside.expect(Linked, LINK_S)
        head.expect(PrefillLinked, LINK_S)

    def _await_links(self, worker: BareWorker, deadline: float) -> None:
        while True:
            arrival = worker.next(deadline - perf_counter())
            report = arrival.report
            if isinstance(report, Token | AnswerDone | Prefilled | Samples):
                self._unread.append(arrival)  # the engine does not wait for us
            if isinstance(report, Failed):
                raise error_from(report.problem)
            if not isinstance(report, Linked | LinkBroken) or report.plan_gen != self.plan.plan_gen:
                continue  # of the links before
            if isinstance(report, LinkBroken):
                raise error_from(report.problem)
            return

    def _next(self, deadline: float) -> Arrival:
        return self._unread.popleft() if self._unread else self.workers[0].next(deadline - perf_counter())

    def generate(
        self,
        tokens: Sequence[int],
        *,
        max_tokens: int = 16,
        sampling: Sampling = GREEDY,
        eos: Sequence[int] = (),
        timeout_s: float = ANSWER_S,
        on_token: Callable[[Token], None] | None = None,
    ) -> RingAnswer:
        """The answer to a prompt of token ids; `on_token` is called as they come. An answer that breaks is returned
        too, with its problem. Raises WorkerDied if the head ends, WorkerError if it is not done within `timeout_s`.
        """
        request = a_request(tokens, max_tokens=max_tokens, sampling=sampling, eos=eos)
        return self.generate_all([request], timeout_s=timeout_s, on_token=on_token)[0]

    def generate_all(
        self,
        requests: Sequence[Request],
        *,
        timeout_s: float = ANSWER_S,
        on_token: Callable[[Token], None] | None = None,
    ) -> list[RingAnswer]:
        """Ask for all at once; the answers in the order of the requests, as `generate` gives one."""
        for request in requests:
            self.send(request)
        return self.collect([r.request_id for r in requests], timeout_s=timeout_s, on_token=on_token)

    def send(self, request: Request) -> None:
        """Ask, and do not wait. Raises WorkerDied."""
        self.workers[0].send(request)

    def cancel(self, request_id: str) -> None:
        """Take a request back. Raises WorkerDied."""
        self.workers[0].send(Cancel(request_id=request_id))

    def collect(
        self,
        request_ids: Sequence[str],
        *,
        timeout_s: float = ANSWER_S,
        on_token: Callable[[Token], None] | None = None,
    ) -> list[RingAnswer]:
        """Wait until these requests are done; their answers, in this order. A ring that breaks is linked anew, as a
        node does. Raises what a stage reports when that fails, or why ranks were parted, WorkerDied, WorkerError.
        """
        deadline = perf_counter() + timeout_s
        parts = {request_id: _RingParts() for request_id in request_ids}
        samples: tuple[StageSample, ...] = ()
        while any(part.done is None for part in parts.values()):
            at, report = self._next(deadline)
            match report:
                case LinkBroken(plan_gen=gen) if gen == self.plan.plan_gen:
                    self.relink()
                case GroupBroken(problem=problem):
                    raise error_from(problem)
                case Token(request_id=request_id) if request_id in parts:
                    parts[request_id].add(report, at)
                    if on_token:
                        on_token(report)
                case Samples():
                    samples = tuple(report.stages)
                case AnswerDone(request_id=request_id) if request_id in parts:
                    parts[request_id].done = report
        return [parts[request_id].answer(samples) for request_id in request_ids]

    def traces(self) -> list[list[TraceSpan]]:
        """When each stage computed what since the last call. Raises WorkerDied or WorkerError."""
        for worker in self.workers:
            worker.send(Trace())
        return [worker.expect(Traced, LINK_S).spans for worker in self.workers]

    def phases(self, *, goes_on: bool) -> list[list[PhaseTurn]]:
        """The turns of each stage since the call before, if that said that it `goes_on`. Raises WorkerDied or
        WorkerError.
        """
        return [self._phases_of(worker, goes_on) for worker in self.workers]

    def _phases_of(self, worker: BareWorker, goes_on: bool) -> list[PhaseTurn]:
        turns: list[PhaseTurn] = []
        while True:
            worker.send(TracePhases(is_on=goes_on))
            more = worker.expect(TracedPhases, LINK_S).turns
            turns += more
            if not more:
                return turns

    def sights(self) -> list[tuple[Sight, ...]]:
        """What kinds of values each stage has handled. Raises WorkerDied or WorkerError."""
        for worker in self.workers:
            worker.send(Trace())
        return [worker.expect(Traced, LINK_S).seen for worker in self.workers]


class _RingParts:
    """An answer that is coming."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.times: list[float] = []
        self.done: AnswerDone | None = None

    def add(self, token: Token, at: float) -> None:
        self.tokens.append(token)
        self.times.append(at)

    def answer(self, samples: tuple[StageSample, ...]) -> RingAnswer:
        assert self.done
        return RingAnswer(
            tuple(t.token for t in self.tokens), self.done, samples, tuple(self.times), tuple(self.tokens)
        )


def a_request(
    tokens: Sequence[int],
    *,
    max_tokens: int = 16,
    sampling: Sampling = GREEDY,
    eos: Sequence[int] = (),
    min_tokens: int = 0,
) -> Request:
    """A request with an id of its own."""
    return Request(
        request_id=secrets.token_hex(16),
        tokens=list(tokens),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        eos=list(eos),
        sampling=sampling,
    )


@contextmanager
def worker_ring(
    model_dir: Path,
    cuts: Sequence[int],
    *,
    topology: Topology = DEFAULT_TOPOLOGY,
    ranks: int = 0,
    group: GroupKind = "sealed",
    own_gpus: bool = False,
    reroute: Reroute | None = None,
    key_limits: KeyUse = KEY_LIMITS,
    try_s: float = TRY_S,
    lanes: int | None = None,
    draft: int = MAX_DRAFT,
    drafter: Path | None = None,
    prefill: int | None = None,
    **settings: Unpack[Settings],
) -> Iterator[WorkerRing]:
    """A ring over the model in `model_dir`, linked and ready; its workers and keys are gone afterwards.

    `cuts` are the first layers of all stages but the first one's: none is a ring of one, (3, 7) is three stages. With
    several `ranks` each of them has a part of every layer, and they add up through a `group`. With `own_gpus` each
    worker computes on an NVIDIA GPU of its own.
    `reroute(stage, port)` gives the port that the stage before dials in place of the stage's own, so that a proxy can
    stand between them; it is asked anew for every link. All links get new keys once one has carried `key_limits`.
    `lanes` in place of one for each stage, and another `draft`, are for comparisons; `drafter`: the directory of a
    model that guesses. Where so many tokens of a `prefill` are in no memory, one more worker reads them beside the
    ring. `settings` are fields of the plan.

    Raises what a stage reports, WorkerError or its kinds.
    """
    layers = read_folder(model_dir).layout().layers
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="macluster-ring-")))
        count = ranks or len(cuts) + 1
        all_macs = make_macs(folder, count + (prefill is not None))
        macs = all_macs._replace(identities=all_macs.identities[:count])
        plan = tensor_plan_of(model_dir.name, layers, macs, group) if ranks else None
        plan = plan or plan_of(model_dir.name, layers, cuts, macs, topology)
        plan = msgspec.structs.replace(plan, **settings)
        workers = [
            stack.enter_context(closing(BareWorker(index, own_gpu=own_gpus))) for index in range(len(plan.stages))
        ]
        beside = None
        if prefill is not None:
            reader = _stage(all_macs.identities[-1], count, 0, layers)
            plan = msgspec.structs.replace(plan, prefill=Prefill(stage=reader, least=prefill, share=0.0))
            beside = stack.enter_context(closing(BareWorker(count)))
        everybody = [*workers, *([beside] if beside else [])]
        for worker, mac in zip(everybody, all_macs.identities, strict=True):
            worker.send(Join(identity_folder=str(mac.key_path.parent), passphrase=mac.passphrase, host=HOST))
        for worker in everybody:
            worker.port = worker.expect(Listening, START_S).port
            load = Load(plan=plan, index=worker.index, directory=str(model_dir), try_s=try_s, lanes=lanes, draft=draft)
            if worker is beside:
                load = msgspec.structs.replace(load, plan=prefill_plan(plan, 1), index=1)
            worker.send(msgspec.structs.replace(load, drafter=str(drafter or "")))
        for worker in everybody:
            worker.expect(Loaded, LOAD_S)
        ring = WorkerRing(plan, workers, macs, reroute, key_limits, beside)
        ring.link()
        if beside:
            ring.link_beside()
        yield ring


def plan_of(model: str, layers: int, cuts: Sequence[int], macs: LocalMacs, topology: Topology) -> Plan:
    """A plan of `layers` layers over `macs`, cut before `cuts`, with an unmeasured model."""
    owners = list(pairwise((0, *cuts, layers)))
    topology = topology if cuts else LONE_MAC_TOPOLOGY
    row, last = TOPOLOGIES[topology], owners[-1]
    owners.insert(0, owners.pop(row.head(len(owners))))  # the ring begins with the head
    return _plan(model, topology, owners, owners.index(last) if row.last_outputs else 0, macs)


def tensor_plan_of(model: str, layers: int, macs: LocalMacs, group: GroupKind = "sealed") -> Plan:
    """A plan by which each of `macs` is a rank, with a part of each of `layers` layers."""
    plan = _plan(model, TOPOLOGY_OF_RANKS, [(0, layers)] * len(macs.identities), 0, macs)
    return msgspec.structs.replace(
        plan, parallelism=Parallelism(choice="tp", strategy="tp", reason="It was asked for.", group=group)
    )


def _plan(model: str, topology: Topology, owners: Sequence[tuple[int, int]], output: int, macs: LocalMacs) -> Plan:
    stages = tuple(
        _stage(mac, index, start, stop)
        for index, (mac, (start, stop)) in enumerate(zip(macs.identities, owners, strict=True))
    )
    return Plan(
        plan_gen=1,
        model=model,
        fingerprint="",
        topology=topology,
        layers=max(stop for _, stop in owners),
        context=CONTEXT,
        chunk=PREFILL_CHUNK,
        window=len(stages) + 1,
        stages=stages,
        output=stages[output].device_id,
    )


def _stage(mac: Identity, index: int, start: int, stop: int) -> Stage:
    name = f"mac-{index}"
    return Stage(device_id=mac.text_id, peer=name, start=start, stop=stop, weight_bytes=0, kv_bytes=0, budget_bytes=0)
