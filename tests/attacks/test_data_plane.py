"""T2, T4, T6 on the links of activations: a real worker process, and a neighbour stage whose keys the test holds."""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import NamedTuple

import mlx.core as mx
import msgspec
import psutil
import pytest

from core.engine.ring_work import Copy, Extend, Extract, Finalise, Keep, Merge, New, Op, PrepareRows, Trim
from core.errors import LinkError, Problem, WorkerError
from core.link import network_paths
from core.link.arrays import encode_arrays
from core.link.data_plane import Receiver, Sender, accept, dial, listen
from core.link.frames import HEADER, Buffer, FrameHeader, FrameType
from core.link.tls import client_context, server_context
from core.local.bare_worker import HOST
from core.local.plans import digest_of
from core.trust.identity import parse_text_id
from core.worker.follower import HANDLES_LIMIT
from core.worker.messages import Connect, LinkBroken, Linked
from core.worker.work_frames import (
    WORK,
    ResumeState,
    WorkFrame,
    decode_problem,
    encode_orders,
    encode_resume_state,
    read_work,
)
from tests.attacks.mutations import mutate
from tests.attacks.relays import Meddler, Middle, Way
from tests.attacks.victim import DEEP, HIDDEN, Stranger, reckless
from tests.support.maker import make_model
from tests.support.search import SEARCH
from tests.support.worker_ring import LINK_S, WorkerRing, worker_ring

pytestmark = pytest.mark.slow

SESSIONS = 10
MEDDLED = 39 * SEARCH  # three times at each place
TRIES = 3
FRAMES = 40 * SEARCH
MIB = 1 << 20
CLIENT, SERVER = ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER
ACTIVATION, ERROR = FrameType.ACTIVATION, FrameType.ERROR


class HostileStage:
    """Stage 0 of a ring, played by the test; stage 1 is the victim, and the keys of stage 2 are ours as well."""

    def __init__(self, ring: WorkerRing) -> None:
        self.victim = ring.workers[1]
        self.identity, _, self.third = ring.macs.identities
        self.cluster = ring.macs.cluster
        self.plan = ring.plan
        self._listener = listen(HOST)

    def close(self) -> None:
        self._listener.close()

    def ask(self) -> None:
        """Make the victim wait ten seconds for its neighbour, under a plan of the next generation."""
        self.plan = msgspec.structs.replace(self.plan, plan_gen=self.plan.plan_gen + 1)
        port = self._listener.getsockname()[1]
        encoded = self.cluster.encode()
        self.victim.send(
            Connect(
                plan=self.plan,
                digest=digest_of(self.plan),
                cluster=encoded,
                ways=(network_paths.NetworkPath(HOST),),
                next_port=port,
            )
        )

    def see_that_it_waits(self) -> None:
        """Make the victim wait again if it has given up."""
        with suppress(WorkerError):
            while True:
                report = self.victim.next(0.0).report
                if isinstance(report, LinkBroken) and report.plan_gen == self.plan.plan_gen:
                    self.ask()

    def dial(self, port: int = 0) -> Sender:
        """An honest dial; `port` may lead through a relay. Raises LinkError."""
        return dial(
            HOST,
            port or self.victim.port,
            identity=self.identity,
            cluster=self.cluster,
            peer_id=parse_text_id(self.plan.stages[1].device_id),
            binding=digest_of(self.plan),
            timeout_s=60.0,
        ).sender()

    def link(self) -> tuple[Sender, Receiver]:
        """Both links: to the victim, and from it; it dials us back as stage 2."""
        self.ask()
        return self.finish(self.dial())

    def finish(self, sender: Sender) -> tuple[Sender, Receiver]:
        """Accept the second link, once the first one stands; the victim reports both."""
        receiver = accept(
            self._listener,
            identity=self.third,
            cluster=self.cluster,
            peer_id=parse_text_id(self.plan.stages[1].device_id),
            binding=digest_of(self.plan),
            timeout_s=60.0,
        ).receiver()
        while self.victim.expect(Linked, LINK_S).plan_gen != self.plan.plan_gen:
            pass
        return sender, receiver

    def seal(self, sender: Sender, work: WorkFrame, base: int = 1) -> bytes:
        """A sealed frame of stage 0, not sent."""
        first, generation = self.plan.stages[0], self.plan.plan_gen & 0xFFFF
        sealed = sender._sealer.seal(
            work.kind,
            request_id=work.request,
            pos=work.position,
            rows=work.rows,
            layers=(first.start, first.stop),
            plan_gen=generation,
            parts=work.parts(base),
        )
        return bytes(sealed)

    def send(self, sender: Sender, kind: FrameType, body: bytes) -> None:
        """Send a frame that belongs to no work."""
        sender.send(kind, plan_gen=self.plan.plan_gen & 0xFFFF, parts=[body])

    def begin(self, sender: Sender) -> None:
        """Begin as an honest head: the victim drops all rows, and then holds row 1. The next step is 2."""
        self.send(sender, FrameType.RESUME_STATE, encode_resume_state(ResumeState(secrets.token_bytes(16), 1)))
        sender._sock.sendall(self.seal(sender, composition(1, New(1))))


def composition(step: int, *ops: Op) -> WorkFrame:
    return WorkFrame(FrameType.COMPOSE, step, payload=encode_orders(ops))


def activation(step: int, *, position: int = 0) -> WorkFrame:
    return WorkFrame(ACTIVATION, step, 1, position=position, rows=1, payload=encode_arrays([mx.zeros((1, 1, HIDDEN))]))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileStage]:
    model = tmp_path_factory.mktemp("model") / "llama"
    make_model(model, "llama")
    with worker_ring(model, (3, 6)) as ring:
        for other in (ring.workers[0], ring.workers[2]):
            other.kill()
        with closing(HostileStage(ring)) as played:
            yield played
            assert played.victim.is_alive


async def ready(hostile: HostileStage, port: int) -> int:
    """1 if an honest dial through `port` becomes a link."""
    hostile.see_that_it_waits()
    try:
        sender = await asyncio.to_thread(hostile.dial, port)
    except LinkError:
        return 0
    sender.close()
    return 1


async def comes_through(hostile: HostileStage) -> None:
    """Whether an honest dial succeeds; repeated if the victim gave up just then."""
    async with asyncio.timeout(LINK_S * 4):
        while True:
            hostile.see_that_it_waits()
            with suppress(LinkError):
                for end in await asyncio.to_thread(lambda: hostile.finish(hostile.dial())):
                    end.close()
                return
            await asyncio.sleep(0.1)


@pytest.mark.search
@pytest.mark.promise("P2")
async def test_no_data_session_through_a_man_in_the_middle_is_ready(hostile: HostileStage) -> None:
    """After each man, an honest dial succeeds; `test_middle` has the sessions of the control plane."""
    own, theirs = (stage.device_id for stage in hostile.plan.stages[:2])
    men = {
        "a stranger": (Stranger().context(SERVER), Stranger().context(CLIENT)),
        "a stranger in their names": (Stranger(theirs).context(SERVER), Stranger(own).context(CLIENT)),
        "a member in between": (
            reckless(server_context(hostile.third, hostile.cluster)),
            reckless(client_context(hostile.third, hostile.cluster)),
        ),
    }
    for who, (near, far) in men.items():
        hostile.ask()
        async with Middle(hostile.victim.port, near, far) as port:
            assert sum([await ready(hostile, port) for _ in range(SESSIONS)]) == 0, who
        await comes_through(hostile)
    hostile.ask()
    meddler = Meddler(hostile.victim.port, seed=8)
    places: list[tuple[Way, int]] = [*(("up", n) for n in range(6)), *(("down", n) for n in range(7))]
    async with meddler as port:
        for number in range(MEDDLED):
            meddler.aim = places[number % len(places)]
            for _ in range(TRIES):  # if the victim gave up just then, there was nothing to spoil
                assert await ready(hostile, port) == 0, meddler.aim
                if meddler.hits == number + 1:
                    break
            assert meddler.hits == number + 1
    await comes_through(hostile)


class VictimOutput(NamedTuple):
    """Frames that the victim sent on before it closed the link, and its reason."""

    kinds: list[FrameType]
    problem: Problem | None


HONEST = [FrameType.RESUME_STATE, FrameType.COMPOSE, ACTIVATION, ERROR]


def attacked(hostile: HostileStage, attack: Callable[[Sender], None]) -> VictimOutput:
    """The result of an attack on the victim's link after an honest start; the link is gone at the end."""
    sender, receiver = hostile.link()
    kinds, problem = [], None
    try:
        hostile.begin(sender)
        attack(sender)
        sender.close()
        while True:
            frame = receiver.recv(5.0)
            kinds.append(frame.header.type)
            if frame.header.type is ERROR:
                problem, _ = decode_problem(read_work(frame)[0].payload[0])
    except LinkError:
        return VictimOutput(kinds, problem)
    finally:
        sender.close()
        receiver.close()


def check_honest(hostile: HostileStage) -> None:
    """Check that the victim computes for an honest neighbour, and gives a reason when it ends."""
    honest = attacked(hostile, lambda sender: sender._sock.sendall(hostile.seal(sender, activation(2))))
    assert honest.kinds == HONEST
    assert honest.problem
    assert honest.problem.kind == "LinkLost"


def rss(hostile: HostileStage) -> int:
    return int(psutil.Process(hostile.victim.pid).memory_info().rss)


@pytest.mark.search
@pytest.mark.promise("P6")
def test_mutated_frames_on_a_hop_are_never_computed(hostile: HostileStage) -> None:
    """The honest frame comes back as an activation; the others give only a reason, or nothing."""
    dice = random.Random(9)

    def bend(sender: Sender) -> None:
        before = hostile.seal(sender, activation(2), 2)
        good = hostile.seal(sender, activation(3, position=1), 3)
        sender._sock.sendall(before + mutate(good, before, dice))

    check_honest(hostile)
    for _ in range(FRAMES):
        assert attacked(hostile, bend).kinds == HONEST


@pytest.mark.search
@pytest.mark.promise("T4")
def test_a_hostile_stage_is_refused_and_the_worker_lives(hostile: HostileStage) -> None:
    """T4: it holds the keys, so every frame opens: other types, rows, positions, layers, plans, steps and handles, and
    junk for arrays and compositions.
    """
    dice = random.Random(10)
    first = hostile.plan.stages[0]

    def odd(sender: Sender) -> None:
        for step in range(2, 6):
            good = encode_arrays([mx.zeros((1, dice.choice([1, 1, 1, 2, 0]), HIDDEN))])
            step = dice.choice([step, step, step, 0, 1, step + 1, 2**64 - 1])
            base, handle = dice.choice([step, 1, 1, 0, step + 1, 2**64 - 1]), dice.choice([1, 1, 1, 0, 2**32 - 1])
            ops: list[Op] = [New(handle + step % 9), Merge(2**31, (1, 2)), Keep(1, (0, 3)), Trim(1, handle)]
            bodies: list[list[Buffer]] = [
                good,
                good,
                good[:1],
                good * 2,
                encode_orders(ops[:step]),
                [],
                [dice.randbytes(99)],
            ]
            sender.send(
                dice.choice([ACTIVATION, ACTIVATION, FrameType.COMPOSE, *FrameType]),
                pos=dice.choice([0, 0, 1, 2**32 - 1]),
                rows=dice.choice([0, 1, 1, 4096]),
                layers=dice.choice([(first.start, first.stop)] * 4 + [(0, 0), (7, 65535)]),
                plan_gen=dice.choice([hostile.plan.plan_gen] * 4 + [0, hostile.plan.plan_gen - 1]) & 0xFFFF,
                flags=dice.randrange(8),
                dtype=dice.randrange(6),
                parts=[WORK.pack(step, base % 2**64, handle, dice.choice([0, 0, 0, 1, 65535])), *dice.choice(bodies)],
            )

    def try_odd(sender: Sender) -> None:
        with suppress(LinkError):  # it may have closed after the first one
            odd(sender)

    for _ in range(FRAMES):
        attacked(hostile, try_odd)
    check_honest(hostile)


HOSTILE_WORK = {
    "rows that are not held": composition(2, Merge(2, tuple(range(1, 1000)))),
    "a row many times": composition(2, Merge(2, (1,) * 1000)),
    "more rows than the rest is long": WorkFrame(
        FrameType.COMPOSE, 2, payload=[b"\x91\x93\xa5Merge\x01\xdd\xff\xff\xff\xff"]
    ),
    "2^32 - 1 operations": WorkFrame(FrameType.COMPOSE, 2, payload=[b"\xdd\xff\xff\xff\xff"]),
    "operations without end": composition(2, *(New(2**32 - 1 - n) for n in range(HANDLES_LIMIT))),
    "a long composition": WorkFrame(FrameType.COMPOSE, 2, payload=[bytes(MIB)]),
    "a row that is not there": composition(2, Merge(2, (1,)), Keep(2, (1,))),
    "row 2^32 - 1": composition(2, Merge(2, (1,)), Keep(2, (2**32 - 1,))),
    "no row": composition(2, Merge(2, (1,)), Keep(2, ())),
    "rows of a row": composition(2, Keep(1, (0,))),
    "a row of nothing": composition(2, Extract(3, 2**32 - 1, 0)),
    "more than was fed": composition(2, Trim(1, 1)),
    "2^32 - 1 tokens off": composition(2, Trim(1, 2**32 - 1)),
    "padding for two rows": composition(2, Merge(2, (1,)), PrepareRows(2, left_padding=(0, 0))),
    "padding for no row": composition(2, Merge(2, (1,)), PrepareRows(2, right_padding=())),
    "padding for one": composition(2, PrepareRows(1, lengths=(1,))),
    "padding's end for one": composition(2, Finalise(1)),
    "a batch behind a row": composition(2, Extend(1, 1)),
    "a copy of itself": composition(2, Copy(1, 1)),
    "a step far ahead": activation(2**64 - 1),
    "a step too far": activation(3),
    "a step that nobody waits for": activation(1),
    "a handle that is not held": activation(2)._replace(handle=2**32 - 1),
    "a bomb of lists": WorkFrame(FrameType.COMPOSE, 2, payload=[DEEP]),
    "a bomb behind an operation": WorkFrame(FrameType.COMPOSE, 2, payload=[b"\x91\x93\xa3New\x01" + DEEP]),
    "an operation's name that is no text": WorkFrame(FrameType.COMPOSE, 2, payload=[b"\x91\x92\xa3\xff\xfe\xfd\x01"]),
    "an array of no bytes and 2^32 - 1 columns": activation(2)._replace(
        payload=[b"\x01\x01\x02" + bytes(4) + b"\xff" * 4]
    ),
    "an answer": WorkFrame(FrameType.ACK, 2),
}


@pytest.mark.parametrize("work", [pytest.param(work, id=name) for name, work in HOSTILE_WORK.items()])
@pytest.mark.promise("T4")
def test_work_that_no_honest_stage_sends_ends_the_link_and_nothing_else(hostile: HostileStage, work: WorkFrame) -> None:
    base = 2 if work.step < 3 else 1
    heard = attacked(hostile, lambda sender: sender._sock.sendall(hostile.seal(sender, work, base)))
    assert heard.kinds == [FrameType.RESUME_STATE, FrameType.COMPOSE, ERROR]
    assert heard.problem
    assert heard.problem.kind == "ProtocolError"
    check_honest(hostile)


HOSTILE_BODIES = {
    "a standing that is a bomb": (FrameType.RESUME_STATE, b"\x94\xc4\x01r\x01\x90" + DEEP),
    "a standing that is text": (FrameType.RESUME_STATE, b"\x93\xa2\xff\xfe\x01\x90"),
    "figures that are a bomb": (FrameType.TELEMETRY, b"\x91\x82\xa5index\x00\xa1x" + DEEP),
    "figures that are no numbers": (FrameType.TELEMETRY, b"\x91\x82\xa5index\x00\xa6wait_s\xcb\x7f\xf8" + bytes(6)),
    "long figures": (FrameType.TELEMETRY, b"\xdd\x00\x02\x00\x00" + b"\x81\xa5index\x00" * (1 << 17)),
    "a frame of the control plane": (FrameType.ROSTER, b"{}"),
}


@pytest.mark.parametrize(("kind", "body"), [pytest.param(*pair, id=name) for name, pair in HOSTILE_BODIES.items()])
def test_a_body_that_no_honest_stage_sends_ends_the_link_and_nothing_else(
    hostile: HostileStage, kind: FrameType, body: bytes
) -> None:
    heard = attacked(hostile, lambda sender: hostile.send(sender, kind, body))
    assert heard.kinds == [FrameType.RESUME_STATE, FrameType.COMPOSE, ERROR]
    assert heard.problem
    assert heard.problem.kind == "ProtocolError"
    check_honest(hostile)


@pytest.mark.promise("P9")
def test_no_stage_makes_another_hold_rows_or_replies_without_end(hostile: HostileStage) -> None:
    """The flood is one new row after the other, without waiting for an answer."""

    def flood(sender: Sender) -> None:
        with suppress(OSError):  # the victim closes the link
            for step in range(2, 20 * HANDLES_LIMIT):
                sender._sock.sendall(hostile.seal(sender, composition(step, New(2**32 - step))))

    attacked(hostile, flood)
    before = rss(hostile)
    for _ in range(3):
        heard = attacked(hostile, flood)
        assert heard.problem is None or heard.problem.kind == "ProtocolError"
        assert len(heard.kinds) < 1.1 * HANDLES_LIMIT
    assert rss(hostile) - before < 8 * MIB
    check_honest(hostile)


@pytest.mark.promise("P9")
def test_a_frame_that_claims_1_gib_costs_the_worker_no_memory(hostile: HostileStage) -> None:
    def claim(length: int) -> None:
        header = FrameHeader(FrameType.KV, 0, 0, 0, length, 0, 1, bytes(16), 0, 0, 0, 0)
        packed = HEADER.pack(b"MC", 1, *header)
        attacked(hostile, lambda sender: sender._sock.sendall(packed))

    for _ in range(8):
        claim(1 << 30)
    before = rss(hostile)
    for length in (1 << 30, 2**32 - 1, 0, 16 * MIB + 17):
        for _ in range(3):
            claim(length)
    assert rss(hostile) - before < MIB
