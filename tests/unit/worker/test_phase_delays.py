"""20 ms more in one phase of a step show in that phase and in no other; the next stage runs over real links."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import mlx.core as mx
import pytest

from core.engine.ring_work import New
from core.link.arrays import encode_arrays
from core.link.frames import FrameType
from core.requests.trace import Phase
from core.worker.follower import Follower
from core.worker.stage import LoadedStage
from core.worker.work_frames import WorkFrame, encode_orders
from tests.support.delays import DELAY_S, STEPS, delayed, slowed
from tests.support.grammars import BYTES
from tests.support.linked import WAIT_S, Linked
from tests.support.made import build, twin
from tests.support.rings import private_ring

pytestmark = pytest.mark.slow

FOLLOWING: dict[Phase, str] = {
    "to_bytes": "core.link.seal.Opener.look",
    "aead_open": "core.link.seal.Opener.open",
    "codec_decode": "core.worker.hidden_states.HiddenStates.decode",
    "layers_compute": "core.worker.stage.LoadedStage._advance",
    "codec_encode": "core.worker.hidden_states.HiddenStates.encode",
    "aead_seal": "core.link.seal.Sealer.seal",
    "send_hop": "core.link.data_link.Sender._transmit",
}
LEADING: dict[Phase, str] = {
    "embed": "core.models.slicing.slots.Slice.embed",
    "logits_compute": "core.models.slicing.slots.Slice.output",
}


class Pair:
    """The head's layers, which the test runs, and the next stage."""

    def __init__(self, linked: Linked, head: LoadedStage, stage: LoadedStage) -> None:
        self.linked, self.head, self.stage = linked, head, stage
        self._follower = Follower(stage, linked.plan, 1, BYTES)
        self._step = 0
        head.compose([New(1)])
        self.send(WorkFrame(FrameType.COMPOSE, 0, payload=encode_orders([New(1)])))
        self.follow()

    def send(self, work: WorkFrame) -> None:
        self._step += 1
        self.linked.head.send_work(work._replace(step=self._step), self._step)

    def follow(self) -> None:
        ring = self.linked.rings[1]
        assert ring.wait((), WAIT_S)
        self._follower.serve(ring, ring.receive())
        self.linked.head.receive()

    def step(self) -> None:
        """Send one token through both."""
        position = self.head.position(1)
        boundary = self.head.embed(1, mx.array([[5]]))
        mx.eval(self.head.output(1, boundary))
        if phases := self.head.meter.phases:
            phases.works(self._step, "step")
            phases.end()
        payload = encode_arrays(boundary)
        self.send(WorkFrame(FrameType.ACTIVATION, 0, 1, position=position, rows=1, payload=payload))
        self.follow()


@pytest.fixture
def pair() -> Iterator[Pair]:
    whole = build("llama")
    head, stage = private_ring(whole, lambda: twin("llama", whole), (3,)).stages
    with ExitStack() as stack:
        both = (head, stage)
        row_bytes = [each.layers.incoming_bytes_per_token for each in both]
        linked = Linked(stack, 2, row_bytes=row_bytes, meters=[each.meter for each in both])
        linked.link()
        yield Pair(linked, head, stage)


def steps(step: Callable[[], None]) -> Callable[[], None]:
    """Run as many steps as are examined."""

    def work() -> None:
        for _ in range(STEPS):
            step()

    return work


@pytest.mark.parametrize("phase", FOLLOWING)
def test_of_a_stage_that_follows(pair: Pair, monkeypatch: pytest.MonkeyPatch, phase: Phase) -> None:
    pair.step()
    slowed(monkeypatch, FOLLOWING[phase])
    # the other end is in this process, and slowed as well
    assert delayed(pair.stage.meter, steps(pair.step), aside="recv_wait") == {phase}


def test_of_the_wait_for_a_frame(pair: Pair) -> None:
    def late() -> None:
        time.sleep(DELAY_S)
        pair.step()

    pair.step()
    assert delayed(pair.stage.meter, steps(late)) == {"recv_wait"}


@pytest.mark.parametrize("phase", LEADING)
def test_of_the_head(pair: Pair, monkeypatch: pytest.MonkeyPatch, phase: Phase) -> None:
    def step() -> None:
        if phases := pair.head.meter.phases:
            phases.rest()
        pair.step()

    pair.step()
    slowed(monkeypatch, LEADING[phase])
    assert delayed(pair.head.meter, steps(step)) == {phase}
