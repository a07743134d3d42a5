"""Watches the events that a person sees, and checks what must always hold."""

from __future__ import annotations

from typing import Any

from core.engine.requests import Request
from core.errors import PlanError
from core.events import (
    AnyEvent,
    PlanFailed,
    PlanLoaded,
    Recovery,
    RecoveryState,
    RequestDone,
    RequestStarted,
    TokenEvent,
)
from core.node.answers.answers import MAX_DEATHS
from core.node.plans.plan_machine import MAX_RELINKS
from core.plan.make_plan import make_plan
from core.plan.survival import options_after_loss
from core.requests.plans import LoadRequest
from tests.simulator.mac import Mac, Node
from tests.simulator.stand_ins import EOS, LAYERS, entry, layout_of
from tests.simulator.world import World
from tests.support.simulated import alone

# rest before each further attempt, by the number of failures in a row without a token
RESTS_S = (0.0, 0.0, 0.5, 1.0, 2.0)
# reasons that end an answer of a ready plan, other than completion and cancellation
PROBLEMS = frozenset({"Parked", "NotLoaded", "NotPaired", "RosterFork"})


class Asked:
    """One request: its answer when run alone, and the tokens shown."""

    def __init__(self, request: Request) -> None:
        self.whole = alone(request, LAYERS)
        self.shown: list[int] = []
        self.done: RequestDone | None = None
        self.is_cancelled = False


class Watching:
    """Gets every event of a head's node.

    `distrusted`: answers with a Mac that was revoked just now; `was_ready`: whether the plan of the person's last load
    was ready.
    """

    def __init__(self, world: World, head: Mac) -> None:
        self.world, self.head = world, head
        self.asked: dict[str, Asked] = {}
        self.distrusted: set[str] = set()
        self.lost_power = self.was_ready = False
        self._state: RecoveryState = "running"
        self.moving: list[Node] = []  # nodes with a session that is being saved or loaded
        self._held_at, self._attempts = 0.0, 0

    def heard(self, node: Node, event: AnyEvent) -> None:
        """Note an event of a Mac."""
        match event:
            case RequestStarted(request_id=name):
                self._began(node.home, name)
            case TokenEvent(request_id=name):
                self._shown(node.home, name, event)
            case RequestDone(request_id=name):
                self._ended(name, event)
            case Recovery(state=state, text=text, choices=choices):
                self.world.kinds[state] += 1
                self.world.tell(f"{state}: {text} {' '.join(choices)}")
                self._check_pace(node, state)
            case PlanLoaded(plan_gen=gen):
                self.was_ready = True
                self.world.kinds[node.worker.led.topology if node.worker.led else ""] += 1
                self._check_links(node, gen)
                self.world.tell(f"plan {gen} is ready")
            case PlanFailed(plan_gen=gen, problem=problem):
                self.world.tell(f"plan {gen} failed: {problem.kind} {problem.what}")

    def _began(self, home: Mac, name: str) -> None:
        record, tokens = home.disk.logs[name].record, home.disk.tokens(name)
        self.world.tell(f"request {name[:4]} begins behind {len(tokens)}")
        if name not in self.asked:
            request = Request(
                request_id=name,
                tokens=record.prompt,
                max_tokens=record.max_tokens,
                min_tokens=record.min_tokens,
                sampling=record.sampling,
                eos=sorted(EOS),
            )
            self.asked[name] = Asked(request)
        asked = self.asked[name]
        assert tokens == asked.whole[: len(tokens)]
        assert self.lost_power or len(tokens) == len(asked.shown), "what was shown is not known any more"
        asked.shown, asked.done = tokens, None

    def _shown(self, home: Mac, name: str, event: TokenEvent) -> None:
        asked = self.asked[name]
        assert asked.done is None, "a token is shown after the end"
        assert event.index == len(asked.shown), "a token is shown twice, or left out"
        assert event.token == asked.whole[event.index], "another token than alone"
        asked.shown.append(event.token)
        assert home.disk.tokens(name) == asked.shown, "what is shown is not what is written"

    def _ended(self, name: str, event: RequestDone) -> None:
        asked, reason, problem = self.asked[name], event.finish_reason, event.problem
        self.world.tell(
            f"request {name[:4]} ends with {event.tokens} tokens: {reason} {problem.what if problem else ''}"
        )
        assert asked.done is None, "an answer ended twice"
        assert event.tokens == len(asked.shown)
        if name in self.distrusted:
            assert problem, "an answer goes on though a Mac of it was put out"
            assert problem.kind == "NotPaired"
            self.distrusted.discard(name)
        if problem:
            crashes = self.world.kinds["_crash"] + self.world.kinds["_fail_load"]
            is_poison = problem.kind == "WorkerDied" and crashes >= MAX_DEATHS
            assert problem.kind in PROBLEMS or is_poison or not self.was_ready, problem
            self.world.kinds[problem.kind] += 1
        elif reason == "cancelled":
            assert asked.is_cancelled, "nobody cancelled it"
        else:
            assert asked.shown == asked.whole, "an answer is not complete"
        asked.done = event
        self.world.kinds[reason] += 1

    def _check_links(self, node: Node, plan_gen: int) -> None:
        """Check that a ready ring has a link of every Mac under this generation."""
        stages = node.worker.led.stages if node.worker.led else ()
        if len(stages) > 1:
            linked = self.world.network.linked
            assert all((stage.device_id, plan_gen) in linked for stage in stages), "a ring is ready that is not linked"

    def _check_pace(self, node: Node, state: RecoveryState) -> None:
        """Check that failed attempts are repeated ever later, and that no split is loaded while a newer is sought."""
        machine: Any = node.plans._machine
        before, self._state = self._state, state
        if state == "hold":
            self._held_at, self._attempts = self.world.loop.now, machine._failures.attempts
        if state == "rebuild" and before in ("hold", "wait"):
            self.world.kinds["again"] += self._attempts > 1
            least = RESTS_S[self._attempts] if before == "hold" else 0.0
            assert self.world.loop.now >= self._held_at + least, "it tries again without a rest"

    @property
    def is_moving(self) -> bool:
        """Whether a session is being saved or loaded and must come to an end."""
        return self.head.is_up and self.head.state != "wait" and self.head.node in self.moving

    def check_calm(self) -> None:
        """Check that it waits only for a good reason."""
        head = self.head
        if head.is_up and head.state == "wait":
            self.world.kinds["waits"] += 1
            self._check_wait(head.node)

    def _check_wait(self, node: Node) -> None:
        machine: Any = node.plans._machine
        if machine._is_patient and machine._gone:
            return
        request: LoadRequest = node.plans._request
        macs = [peer for peer in node.peers.linked() if peer.device_id not in machine._barred]
        try:
            make_plan(
                model=request.model,
                fingerprint=entry(request.model).fingerprint,
                layout=layout_of(request.model),
                peers=macs,
                plan_gen=1,
                **options_after_loss(request, len(macs)),
            )
        except PlanError:
            return
        raise AssertionError("it waits, and could go on")

    def check_answers(self) -> None:
        """Check that no answer is lost, and that one ended by a problem can continue."""
        head = self.head
        unended = {name for name, log in head.disk.logs.items() if log.read().ended is None}
        for name, asked in self.asked.items():
            assert asked.shown == asked.whole[: len(asked.shown)]
            if name not in head.disk.forgotten and (asked.done is None or asked.done.problem):
                assert name in unended, "an answer is lost"
        if head.is_up and head.node.answers.under_way:
            assert head.state == "wait", "an answer is under way, and nothing happens"

    def check_cost(self) -> None:
        """Check that small faults cost little, unless another head takes a Mac or the person wants another split."""
        kinds = self.world.kinds
        if len(self.world.heads) > 1 or kinds["replan"]:
            return
        faults = {kind for kind in kinds if kind.startswith("_") and kinds[kind]}
        if faults <= {"_reset", "_freeze"} and not kinds["slept"] and kinds["_reset"] <= MAX_RELINKS:
            assert not kinds["hold"], "a stage was given up for a link, or for a second of silence"
        if faults <= {"_hang_up"} and kinds["_hang_up"] == 1:
            assert not kinds["rebuild"], "layers were loaded again that nobody had let go of"
        count = sum(kinds[kind] for kind in faults)
        if count <= 2 - bool(kinds["_fail_load"]) and not kinds["_roster"] and not self.head.fails:
            assert kinds["parked"] <= kinds["save"], "it was given up too early"

    def check_memory(self, grace_s: float) -> None:
        """Check that no Mac keeps unneeded layers, unless its head has just gone and may return."""
        self.world.loop.run_for(grace_s + 2.0)
        heads = [home.node for home in self.world.heads]
        if all(node.bus.now.recovery is None for node in heads):
            plans = [node.worker.led for node in heads if node.worker.led]
            serving = {stage.device_id for plan in plans for stage in plan.stages}
            nodes = {home.device_id: home.node for home in self.world.macs if home.is_up}
            holding = {mac for mac, own in nodes.items() if own.worker.plan and (grace_s or not own.member._letting_go)}
            assert holding <= serving, "a Mac keeps the layers of a plan that is over"
