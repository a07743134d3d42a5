"""Speed tests of control links, for this Mac or at the request of a paired one; one at a time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from math import inf
from statistics import median
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from core.errors import Busy, LinkLost, LinkTimeout, MaclusterError, NodeError, NotPaired, UsageError, error_from
from core.events import SPEED_TEST, Progress
from core.mac.network_kind import link_kind
from core.node.base.context import NodeContext
from core.node.peers import messages
from core.node.peers.link_probe import LIMIT_S, PROBES, LinkProbing
from core.node.peers.mesh import Mesh
from core.node.peers.paths import FIGURES_S, Paths
from core.rates import Rate, Throttle, TokenBucket
from core.requests.checks import SpeedRequest, SpeedResult
from core.trust.levels import carries_prompts
from core.trust.name_matching import pick

REST_S: Final = 1.0
ASKED_REST_S: Final = 4.0
MOVED_EVERY_S: Final = 0.1
ANSWERS: Final = Rate(per_s=256.0, burst=512.0)

Moved = Callable[[int], None]


class _Test(NamedTuple):
    """The test that runs."""

    asker: str  # the requesting Mac; "" for this one
    number: int
    work: asyncio.Task[SpeedResult]


class _RemoteTest(NamedTuple):
    """A measurement by another Mac for this one."""

    source: str
    number: int
    moved: Moved
    result: asyncio.Future[SpeedResult]


class SpeedTests:
    """Measures, requests measurements of other Macs, and answers probes.

    A measuring Mac answers no probes: two that fill one link from both ends would measure each other. Other Macs can't
    make this one send much: a reply is smaller than its probe and rate-limited, and they may request one test of
    `core.node.peers.link_probe.PROBES` messages per period.
    """

    def __init__(self, node: NodeContext, mesh: Mesh, paths: Paths) -> None:
        self._own_id, self._bus, self._tasks = node.own_id, node.bus, node.tasks
        self._mesh, self._paths = mesh, paths
        self._numbers = count(1)
        self._test: _Test | None = None
        self._asked: _RemoteTest | None = None
        self._probing: tuple[str, LinkProbing] | None = None
        self._ended_at = -inf
        self._allowances: defaultdict[str, TokenBucket] = defaultdict(lambda: TokenBucket(ANSWERS))

    async def test(self, request: SpeedRequest) -> SpeedResult:
        """Test a hop for the user here. Raises UsageError, NotPaired, LinkError, Busy; NodeError if stopped."""
        source = self._mac(request.source) if request.source else self._own_id
        target = self._mac(request.target)
        if source == target:
            raise UsageError("A hop has two ends.", "Name two different Macs.")
        if self._test:
            raise Busy("This Mac is running a speed test already.")
        was_answering, number = self._bus.now.is_answering, next(self._numbers)
        self._show(number, 0)
        moved = _now_and_then(lambda done: self._show(number, done))
        is_own = source == self._own_id
        work = self._measure(target, moved) if is_own else self._ask(source, target, number, moved)
        result = await self._ended(self._begin("", number, work))
        self._show(number, PROBES)
        answering = was_answering or self._bus.now.is_answering
        return msgspec.structs.replace(result, source=source, target=target, answering=answering)

    async def stop(self) -> None:
        if self._test and not self._test.asker:
            self._test.work.cancel()

    def close(self) -> None:
        if self._test:
            self._test.work.cancel()

    async def handle_message(self, device_id: str, message: messages.LinkProbe | messages.SpeedMessage) -> None:
        match message:
            case messages.LinkProbe(number=number):
                if self._may_answer(device_id):
                    await self._mesh.send(device_id, messages.Probed(number=number))
            case messages.Probed(number=number) if self._probing and self._probing[0] == device_id:
                self._probing[1].handle_reply(number)
            case messages.PeerSpeedRequest():
                await self._asked_by(device_id, message)
            case messages.SpeedStop(test=number) if self._test and self._test[:2] == (device_id, number):
                self._test.work.cancel()
            case messages.SpeedMoved(test=number, done=done) if self._asked and self._asked[:2] == (device_id, number):
                self._asked.moved(min(done, PROBES))
            case messages.SpeedResultSent(test=number) if self._asked and self._asked[:2] == (device_id, number):
                _settle(self._asked.result, message)

    def gone(self, device_id: str) -> None:
        if self._probing and self._probing[0] == device_id:
            self._probing[1].lost()
        if self._asked and self._asked.source == device_id and not self._asked.result.done():
            self._asked.result.set_exception(
                LinkLost(f"{self._bus.now.name_of(device_id)} went away during the speed test.")
            )
        if self._test and self._test.asker == device_id:
            self._test.work.cancel()

    def _begin(self, asker: str, number: int, work: Coroutine[Any, Any, SpeedResult]) -> asyncio.Task[SpeedResult]:
        task = asyncio.create_task(work)
        self._test = _Test(asker, number, task)
        return task

    async def _ended(self, task: asyncio.Task[SpeedResult]) -> SpeedResult:
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current and current.cancelling():
                raise
            raise NodeError("The speed test was stopped.") from None
        finally:
            self._test = None

    async def _measure(self, target: str, moved: Moved) -> SpeedResult:
        await asyncio.sleep(self._ended_at + REST_S - monotonic())
        probing = LinkProbing(self._bus.now.name_of(target), lambda probe: self._mesh.send(target, probe), moved)
        self._probing = (target, probing)
        try:
            figures = await probing.run()
        finally:
            self._probing, self._ended_at = None, monotonic()
        return SpeedResult(
            source=self._own_id,
            target=target,
            rtt_s=median(figures.rtts_s),
            rtt_min_s=min(figures.rtts_s),
            round_trips=len(figures.rtts_s),
            loaded_rtt_s=median(figures.loaded_s),
            frames=len(figures.loaded_s),
            bytes=figures.bytes,
            seconds=figures.seconds,
            via=(await asyncio.to_thread(link_kind, self._mesh.local_host_of(target)))[:64],
            paths=await self._paths.figures(target),
        )

    async def _ask(self, source: str, target: str, number: int, moved: Moved) -> SpeedResult:
        """Request a measurement by another Mac; it gets a SpeedStop if the wait is cancelled."""
        result: asyncio.Future[SpeedResult] = asyncio.get_running_loop().create_future()
        self._asked = _RemoteTest(source, number, moved, result)
        try:
            if not await self._mesh.send(source, messages.PeerSpeedRequest(test=number, target=target)):
                raise LinkLost(f"{self._bus.now.name_of(source)} is not linked.")
            async with asyncio.timeout(REST_S + LIMIT_S + FIGURES_S + REST_S):
                return await result
        except TimeoutError as error:
            raise LinkTimeout(f"{self._bus.now.name_of(source)} did not report what it measured.") from error
        finally:
            self._asked = None
            if result.cancelled() or not result.done():
                self._tell(source, messages.SpeedStop(test=number))

    async def _asked_by(self, asker: str, ask: messages.PeerSpeedRequest) -> None:
        """Refuse at once, before the next message is read, or measure in the background."""
        rest_s = self._ended_at + ASKED_REST_S - monotonic()
        if self._test is None and rest_s <= 0:
            moved = _now_and_then(lambda done: self._tell(asker, messages.SpeedMoved(test=ask.test, done=done)))
            work = self._measure(ask.target, moved)
            serving = self._serve(asker, ask.test, self._begin(asker, ask.test, work))
            self._tasks.spawn("A speed test", serving, partial(self._defect, asker, ask.test))
            return
        what = f"{self._bus.now.name_of(self._own_id)} is testing, or has tested a moment ago."
        busy = Busy(what, f"Try again in {max(1, rest_s):.0f} s.")
        await self._mesh.send(asker, messages.SpeedResultSent(test=ask.test, problem=busy.problem))

    async def _serve(self, asker: str, number: int, task: asyncio.Task[SpeedResult]) -> None:
        try:
            reply = messages.SpeedResultSent(test=number, result=await self._ended(task))
        except MaclusterError as error:
            reply = messages.SpeedResultSent(test=number, problem=error.problem)
        await self._mesh.send(asker, reply)

    def _defect(self, asker: str, number: int) -> None:
        failed = NodeError(
            f"The speed test failed by a defect on {self._bus.now.name_of(self._own_id)}.", "Its log says where."
        )
        self._tell(asker, messages.SpeedResultSent(test=number, problem=failed.problem))

    def _tell(self, device_id: str, message: messages.SpeedMessage) -> None:
        self._tasks.spawn("A message of a speed test", self._mesh.send(device_id, message))

    def _may_answer(self, device_id: str) -> bool:
        """Not while this Mac measures; for each Mac only as many as its tests need."""
        return self._probing is None and self._allowances[device_id].take(monotonic())

    def _show(self, number: int, done: int) -> None:
        self._bus.publish(Progress(task=SPEED_TEST, request_id=str(number), done=done, total=PROBES, unit="messages"))

    def _mac(self, typed: str) -> str:
        """The paired Mac that was typed. Raises UsageError, NotPaired."""
        device_id = pick(typed, [(p.device_id, p.name) for p in self._bus.now.peers])
        peer = next(p for p in self._bus.now.peers if p.device_id == device_id)
        if not peer.is_self and not carries_prompts(peer.trust):
            raise NotPaired(f"{peer.name} is {peer.trust}: only the links of paired Macs are tested.")
        return device_id


def _now_and_then(report: Moved) -> Moved:
    """`report`, at most once in `MOVED_EVERY_S`."""
    throttle = Throttle(MOVED_EVERY_S)

    def moved(done: int) -> None:
        if throttle.take(monotonic()):
            report(done)

    return moved


def _settle(result: asyncio.Future[SpeedResult], message: messages.SpeedResultSent) -> None:
    if result.done():
        return
    if message.result:
        result.set_result(message.result)
    else:
        problem = message.problem or LinkLost("The speed test failed.").problem
        result.set_exception(error_from(problem))
