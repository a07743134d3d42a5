"""A ring of real workers on this machine without nodes, for benches and for tests that step in between stages."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple, TypedDict, Unpack

import msgspec

from core.engine.requests import Request
from core.engine.steps import TRY_S
from core.errors import WorkerError, error_from
from core.events import GroupKind, Parallelism, Plan, Prefill, Sight, Topology, WireType
from core.link.network_paths import NetworkPath
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.local.bare_worker import HOST, Arrival, BareWorker, load_workers
from core.local.macs import LocalMacs, make_macs
from core.local.plans import digest_of, plan_of, plan_over, stage_of
from core.models.files.model_folder import read_folder
from core.plan.prefill import prefill_plan
from core.plan.topology import DEFAULT_TOPOLOGY, TOPOLOGY_OF_RANKS
from core.requests.trace import PhaseTurn
from core.sampling_options import Sampling
from core.settings import MAX_DRAFT
from core.worker import messages

LINK_S: Final = 30.0
ANSWER_S: Final = 300.0
GREEDY: Final = Sampling()

Reroute = Callable[[int, int], int]  # stage and its port: the port to dial instead


class Settings(TypedDict, total=False):
    """Fields of the plan that tests and benches change."""

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
    """One answer of a ring."""

    tokens: tuple[int, ...]
    done: messages.AnswerDone  # `problem` says why the answer broke, if it did
    samples: tuple[messages.StageSample, ...]  # newest figures of each stage, in ring order; empty on a ring of one
    times: tuple[float, ...]  # when each token came out of the head's pipe, seconds of `perf_counter`
    reports: tuple[messages.Token, ...]  # the head's report of each token


class WorkerRing:
    """Workers that hold all layers of a model and are linked by `plan`."""

    def __init__(
        self,
        plan: Plan,
        workers: Sequence[BareWorker],
        macs: LocalMacs,
        reroute: Reroute | None,
        key_limits: KeyUse,
        prefill_worker: BareWorker | None = None,
    ) -> None:
        self.plan = plan
        self.workers = tuple(workers)
        self.prefill_worker = prefill_worker
        self.macs = macs
        self._reroute = reroute
        self._key_limits = key_limits
        self._unread: deque[Arrival] = deque()

    def relink(self) -> None:
        """Link all stages again with the next plan generation. Raises the error that a stage reports, WorkerError."""
        self.plan = msgspec.structs.replace(self.plan, plan_gen=self.plan.plan_gen + 1)
        self.link()

    def link(self) -> None:
        """Link the stages; a ring of one has no links. Raises the error that a stage reports, WorkerError."""
        if len(self.workers) == 1:
            return
        ports = [self._reroute(w.index, w.port) if self._reroute else w.port for w in self.workers]
        for index, worker in enumerate(self.workers):
            worker.send(self._connect(self.plan, ports[(index + 1) % len(ports)]))
        deadline = perf_counter() + LINK_S
        for worker in self.workers:
            self._await_links(worker, deadline)

    def link_prefill(self) -> None:
        """Link the head and the prefill worker. Raises the error that one of them reports, WorkerError."""
        assert self.prefill_worker
        plan, head = prefill_plan(self.plan, 1), self.workers[0]
        self.prefill_worker.send(self._connect(plan, head.port))
        head.send(messages.ConnectPrefill(**msgspec.structs.asdict(self._connect(plan, self.prefill_worker.port))))
        self.prefill_worker.expect(messages.Linked, LINK_S)
        head.expect(messages.PrefillLinked, LINK_S)

    def _connect(self, plan: Plan, next_port: int) -> messages.Connect:
        cluster = self.macs.cluster.encode()
        return messages.Connect(
            plan=plan,
            digest=digest_of(plan),
            cluster=cluster,
            ways=(NetworkPath(HOST),),
            next_port=next_port,
            key_limits=self._key_limits,
        )

    def _await_links(self, worker: BareWorker, deadline: float) -> None:
        while True:
            arrival = worker.next(deadline - perf_counter())
            report = arrival.report
            if isinstance(report, messages.Token | messages.AnswerDone | messages.Prefilled | messages.Samples):
                self._unread.append(arrival)  # the engine does not wait for us
            if isinstance(report, messages.Failed):
                raise error_from(report.problem)
            if not isinstance(report, messages.Linked | messages.LinkBroken) or report.plan_gen != self.plan.plan_gen:
                continue  # from earlier links
            if isinstance(report, messages.LinkBroken):
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
        on_token: Callable[[messages.Token], None] | None = None,
    ) -> RingAnswer:
        """Answer a prompt of token ids; a broken one has a `done.problem`. Raises WorkerDied, or WorkerError (late)."""
        request = a_request(tokens, max_tokens=max_tokens, sampling=sampling, eos=eos)
        return self.generate_all([request], timeout_s=timeout_s, on_token=on_token)[0]

    def generate_all(
        self,
        requests: Sequence[Request],
        *,
        timeout_s: float = ANSWER_S,
        on_token: Callable[[messages.Token], None] | None = None,
    ) -> list[RingAnswer]:
        """Send all requests at once; the answers are in the order of the requests. Raises what `generate` raises."""
        for request in requests:
            self.send(request)
        return self.collect([r.request_id for r in requests], timeout_s=timeout_s, on_token=on_token)

    def send(self, request: Request) -> None:
        """Send a request without waiting for its answer. Raises WorkerDied."""
        self.workers[0].send(request)

    def cancel(self, request_id: str) -> None:
        """Cancel a request. Raises WorkerDied."""
        self.workers[0].send(messages.Cancel(request_id=request_id))

    def collect(
        self,
        request_ids: Sequence[str],
        *,
        timeout_s: float = ANSWER_S,
        on_token: Callable[[messages.Token], None] | None = None,
    ) -> list[RingAnswer]:
        """Wait for these answers; a broken ring is linked again. Raises a stage's error, WorkerDied, WorkerError."""
        deadline = perf_counter() + timeout_s
        said: dict[str, list[tuple[float, messages.Token]]] = {request_id: [] for request_id in request_ids}
        ends: dict[str, messages.AnswerDone] = {}
        samples: tuple[messages.StageSample, ...] = ()
        while ends.keys() != said.keys():
            at, report = self._next(deadline)
            match report:
                case messages.LinkBroken(plan_gen=gen) if gen == self.plan.plan_gen:
                    self.relink()
                case messages.GroupBroken(problem=problem):
                    raise error_from(problem)
                case messages.Token(request_id=request_id) if request_id in said:
                    said[request_id].append((at, report))
                    if on_token:
                        on_token(report)
                case messages.Samples():
                    samples = tuple(report.stages)
                case messages.AnswerDone(request_id=request_id) if request_id in said:
                    ends[request_id] = report
        return [
            RingAnswer(
                tokens=tuple(token.token for _, token in said[request_id]),
                done=ends[request_id],
                samples=samples,
                times=tuple(at for at, _ in said[request_id]),
                reports=tuple(token for _, token in said[request_id]),
            )
            for request_id in request_ids
        ]

    def traces(self) -> list[list[messages.TraceSpan]]:
        """Spans that each stage computed since the last call. Raises WorkerDied or WorkerError."""
        for worker in self.workers:
            worker.send(messages.Trace())
        return [worker.expect(messages.Traced, LINK_S).spans for worker in self.workers]

    def phases(self, *, keep_tracing: bool) -> list[list[PhaseTurn]]:
        """Traced turns of each stage since the last call that had `keep_tracing`. Raises WorkerDied or WorkerError."""
        return [self._phases_of(worker, keep_tracing) for worker in self.workers]

    def _phases_of(self, worker: BareWorker, keep_tracing: bool) -> list[PhaseTurn]:
        turns: list[PhaseTurn] = []
        while True:
            worker.send(messages.TracePhases(is_on=keep_tracing))
            more = worker.expect(messages.TracedPhases, LINK_S).turns
            turns += more
            if not more:
                return turns

    def sights(self) -> list[tuple[Sight, ...]]:
        """Kinds of values that each stage has handled. Raises WorkerDied or WorkerError."""
        for worker in self.workers:
            worker.send(messages.Trace())
        return [worker.expect(messages.Traced, LINK_S).seen for worker in self.workers]


def a_request(
    tokens: Sequence[int],
    *,
    max_tokens: int = 16,
    sampling: Sampling = GREEDY,
    eos: Sequence[int] = (),
    min_tokens: int = 0,
) -> Request:
    """A request with a random id."""
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
    references: Path | None = None,
    **settings: Unpack[Settings],
) -> Iterator[WorkerRing]:
    """Load the model in `model_dir` into workers, link them, and stop them at the end of the block.

    `cuts` are the first layers of all stages but the first: () is a ring of one, (3, 7) has three stages.
    With `ranks`, each of that many workers holds a part of every layer, and they add up through `group`.
    With `own_gpus` each worker computes on an NVIDIA GPU of its own.
    `reroute(stage, port)` gives the port to dial instead of a stage's own, so that a proxy can stand between them; it
    is called again for every link. Links rotate their keys after `key_limits`.
    `lanes` and `draft` replace the engine's own choice; `drafter` is the folder of a draft model.
    With `prefill`, one more worker reads prompts with at least that many tokens that are not cached.
    The head keeps the whole model's logits in `references`, and a proof compares its ring with them.
    `settings` are fields of the plan.

    Raises the error that a worker reports, WorkerDied or WorkerError.
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
        if prefill is not None:
            reader = stage_of(all_macs.identities[-1], count, 0, layers)
            plan = msgspec.structs.replace(plan, prefill=Prefill(stage=reader, least=prefill, share=0.0))
        started = [
            stack.enter_context(closing(BareWorker(index, own_gpu=own_gpus)))
            for index in range(len(all_macs.identities))
        ]
        workers, prefill_worker = started[:count], started[count] if prefill is not None else None

        def load_of(worker: BareWorker) -> messages.Load:
            own, index = (prefill_plan(plan, 1), 1) if worker is prefill_worker else (plan, worker.index)
            return messages.Load(
                plan=own, index=index, directory=str(model_dir), try_s=try_s, lanes=lanes, draft=draft,
                drafter=str(drafter or ""), references=str(references or "") if worker.index == 0 else "",
            )  # fmt: skip

        load_workers(
            dict(zip(started, all_macs.identities, strict=True)), {worker: load_of(worker) for worker in started}
        )
        ring = WorkerRing(plan, workers, macs, reroute, key_limits, prefill_worker)
        ring.link()
        if prefill_worker:
            ring.link_prefill()
        yield ring


def tensor_plan_of(model: str, layers: int, macs: LocalMacs, group: GroupKind = "sealed") -> Plan:
    plan = plan_over(model, TOPOLOGY_OF_RANKS, [(0, layers)] * len(macs.identities), 0, macs)
    made = Parallelism(choice="tp", strategy="tp", reason="It was asked for.", group=group)
    return msgspec.structs.replace(plan, parallelism=made)


class Timed(NamedTuple):
    """An answer with its times, in seconds after the request."""

    answer: RingAnswer
    first_s: float  # to the first token
    seconds: float  # to the last token


def ask(ring: WorkerRing, prompt: Sequence[int], tokens: int, *, fresh: bool = True) -> Timed:
    """Decode `tokens` greedy tokens. Raises what `ask_all` raises."""
    started = perf_counter()
    (answer,) = ask_all(ring, [a_request(prompt, max_tokens=tokens)], fresh=fresh)
    return Timed(answer, answer.times[0] - started, answer.times[-1] - started)


def ask_all(ring: WorkerRing, requests: Sequence[Request], *, fresh: bool = True) -> list[RingAnswer]:
    """Send requests at once and wait. Raises an answer's error, or WorkerError if a `fresh` prompt was cached."""
    answers = ring.generate_all(requests)
    for answer in answers:
        if answer.done.problem:
            raise error_from(answer.done.problem)
        if fresh and answer.done.reused_tokens:
            raise WorkerError(f"{answer.done.reused_tokens} tokens of the prompt were in memory already.")
    return answers
