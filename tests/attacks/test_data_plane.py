"""T2, T4, T6 where activations flow: a real worker process, and a stage beside it whose keys the test holds."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import mlx.core as mx
import msgspec
import psutil
import pytest

from core.bench.ring import HOST, LINK_S, WorkerRing, worker_ring
from core.errors import LinkError
from core.link.arrays import encode_arrays
from core.link.channel import Receiver, Sender, accept, dial, listen
from core.link.frames import HEADER, FrameType, Header
from core.link.tls import client_context, server_context
from core.models.maker import make_model
from core.trust.identity import parse_text_id
from core.worker.messages import Connect, Linked
from core.worker.neighbours import plan_digest
from tests.attacks.mutations import mutate
from tests.attacks.relays import Meddler, Middle, Way
from tests.attacks.victim import Stranger, reckless

pytestmark = pytest.mark.slow

SESSIONS = 125
FRAMES = 100
MIB = 1 << 20
HIDDEN = 96
CLIENT, SERVER = ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER
ACTIVATION, ERROR = FrameType.ACTIVATION, FrameType.ERROR


class Beside:
    """Stage 0 of a ring, played by the test; stage 1 is the victim, and the keys of stage 2 are ours as well."""

    def __init__(self, ring: WorkerRing) -> None:
        self.victim = ring.workers[1]
        self.identity, _, self.third = ring._macs.identities
        self.cluster = ring._macs.cluster
        self.plan = ring.plan
        self._listener = listen(HOST)

    def close(self) -> None:
        self._listener.close()

    def ask(self) -> None:
        """Have the victim wait for its neighbour, for ten seconds, under a plan of the next generation."""
        self.plan = msgspec.structs.replace(self.plan, plan_gen=self.plan.plan_gen + 1)
        port = self._listener.getsockname()[1]
        encoded = self.cluster.encode()
        self.victim.send(Connect(plan=self.plan, cluster=encoded, next_host=HOST, next_port=port))

    def dial(self, port: int = 0) -> Sender:
        """An honest dial; `port` leads through somebody else. Raises LinkError."""
        return dial(
            HOST,
            port or self.victim.port,
            identity=self.identity,
            cluster=self.cluster,
            peer_id=parse_text_id(self.plan.stages[1].device_id),
            binding=plan_digest(self.plan),
            timeout_s=5.0,
        )

    def link(self) -> tuple[Sender, Receiver]:
        """Both links: to the victim, and from it, for in this plan it dials us back in the name of stage 2."""
        self.ask()
        return self.finish(self.dial())

    def finish(self, sender: Sender) -> tuple[Sender, Receiver]:
        """The second link, once the first one stands; the victim says that it has both."""
        receiver = accept(
            self._listener,
            identity=self.third,
            cluster=self.cluster,
            peer_id=parse_text_id(self.plan.stages[1].device_id),
            binding=plan_digest(self.plan),
            timeout_s=5.0,
        )
        while self.victim.expect(Linked, LINK_S).plan_gen != self.plan.plan_gen:
            pass
        return sender, receiver

    def activation(self, sender: Sender) -> bytes:
        """A frame as an honest stage 0 sends it, sealed but not sent."""
        parts = encode_arrays([mx.zeros((1, 1, HIDDEN))])
        first, generation = self.plan.stages[0], self.plan.plan_gen & 0xFFFF
        return bytes(
            sender._sealer.seal(
                FrameType.ACTIVATION,
                request_id=b"r" * 16,
                rows=1,
                layers=(first.start, first.stop),
                plan_gen=generation,
                parts=parts,
            )
        )


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    model = tmp_path_factory.mktemp("model") / "llama"
    make_model(model, "llama")
    with worker_ring(model, (3, 6)) as ring:
        for other in (ring.workers[0], ring.workers[2]):
            other.kill()
        with closing(Beside(ring)) as played:
            yield played
            assert played.victim.is_alive


async def ready(beside: Beside, port: int) -> int:
    """1 if an honest dial through `port` becomes a link."""
    try:
        sender = await asyncio.to_thread(beside.dial, port)
    except LinkError:
        return 0
    sender.close()
    return 1


async def test_of_500_data_sessions_through_a_man_in_the_middle_none_is_ready(beside: Beside) -> None:
    """The other 500 are those of the control plane, in `test_middle`. After each man, an honest dial comes through."""
    own, theirs = (stage.device_id for stage in beside.plan.stages[:2])
    men = {
        "a stranger": (Stranger().context(SERVER), Stranger().context(CLIENT)),
        "a stranger in their names": (Stranger(theirs).context(SERVER), Stranger(own).context(CLIENT)),
        "a member in between": (
            reckless(server_context(beside.third, beside.cluster)),
            reckless(client_context(beside.third, beside.cluster)),
        ),
    }
    for who, (near, far) in men.items():
        beside.ask()
        async with Middle(beside.victim.port, near, far) as port:
            assert sum([await ready(beside, port) for _ in range(SESSIONS)]) == 0, who
        await asyncio.to_thread(lambda: [end.close() for end in beside.finish(beside.dial())])
    beside.ask()
    dice = random.Random(7)
    meddler = Meddler(beside.victim.port, seed=8)
    places: list[tuple[Way, int]] = [*(("up", n) for n in range(6)), *(("down", n) for n in range(7))]
    async with meddler as port:
        for number in range(SESSIONS):
            meddler.aim = dice.choice(places)
            assert await ready(beside, port) == 0, meddler.aim
            assert meddler.hits == number + 1
    await asyncio.to_thread(lambda: [end.close() for end in beside.finish(beside.dial())])


def attacked(beside: Beside, attack: Callable[[Sender], None]) -> list[FrameType]:
    """What the victim sends on, round the ring, after this on its link; at the end the link is gone."""
    sender, receiver = beside.link()
    heard = []
    try:
        attack(sender)
        sender.close()
        while True:
            heard.append(receiver.recv(5.0).header.type)
    except LinkError:
        return heard
    finally:
        sender.close()
        receiver.close()


def test_mutated_frames_on_a_hop_are_never_computed(beside: Beside) -> None:
    """The honest frame comes back as an activation; of the others only the reason comes, or nothing."""
    dice = random.Random(9)

    def bend(sender: Sender) -> None:
        before = beside.activation(sender)
        good = beside.activation(sender)
        sender._sock.sendall(before + mutate(good, before, dice))

    assert attacked(beside, lambda sender: sender._sock.sendall(beside.activation(sender))) == [ACTIVATION, ERROR]
    for _ in range(FRAMES):
        assert attacked(beside, bend) == [ACTIVATION, ERROR]


def test_a_hostile_stage_is_refused_and_the_worker_lives(beside: Beside) -> None:
    """T4: it holds the keys, so every frame opens: other types, rows, positions, layers, plans, and junk for arrays."""
    dice = random.Random(10)
    first = beside.plan.stages[0]

    def odd(sender: Sender) -> None:
        for _ in range(3):
            good = encode_arrays([mx.zeros((1, dice.choice([1, 1, 1, 2, 0]), HIDDEN))])
            sender.send(
                dice.choice([ACTIVATION, ACTIVATION, ACTIVATION, *FrameType]),
                request_id=b"r" * 16,
                pos=dice.choice([0, 0, 1, 2**32 - 1]),
                rows=dice.choice([0, 1, 1, 4096]),
                layers=dice.choice([(first.start, first.stop)] * 4 + [(0, 0), (7, 65535)]),
                plan_gen=dice.choice([beside.plan.plan_gen] * 4 + [0, beside.plan.plan_gen - 1]) & 0xFFFF,
                flags=dice.randrange(4),
                dtype=dice.randrange(6),
                parts=dice.choice([good, good, [], [dice.randbytes(dice.randrange(400))], [good[0]], [*good, *good]]),
            )

    def try_odd(sender: Sender) -> None:
        with suppress(LinkError):  # it may have hung up after the first
            odd(sender)

    for _ in range(FRAMES):
        attacked(beside, try_odd)
    assert attacked(beside, lambda sender: sender._sock.sendall(beside.activation(sender))) == [ACTIVATION, ERROR]


def test_a_frame_that_claims_1_gib_costs_the_worker_no_memory(beside: Beside) -> None:
    def claim(length: int) -> None:
        header = Header(FrameType.KV, 0, 0, 0, length, 0, 1, bytes(16), 0, 0, 0, 0)
        packed = HEADER.pack(b"MC", 1, *header)
        attacked(beside, lambda sender: sender._sock.sendall(packed))

    def rss() -> int:
        return int(psutil.Process(beside.victim.pid).memory_info().rss)

    for _ in range(15):
        claim(1 << 30)
    before = rss()
    for length in (1 << 30, 2**32 - 1, 0, 16 * MIB + 17):
        for _ in range(5):
            claim(length)
    assert rss() - before < MIB
