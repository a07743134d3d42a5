"""A hostile paired Mac, and an impostor on the network: the messages of both are refused on arrival."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable

import msgspec
import pytest
from zeroconf import IPVersion
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from core.errors import ProtocolError, UsageError
from core.events import Plan, Stage
from core.link.frames import FrameType
from core.node.base.node_message import to_frame
from core.node.peers.discovery import SERVICE_TYPE, Discovery, Sighting
from core.node.peers.messages import Ping, Status
from core.node.peers.search import Search
from core.node.peers.stage_state import PlanId
from core.node.ring.messages import FilesReply, LinkUp
from core.node.ring.plan_member import MAX_STAGES, check_order, same_plan
from core.requests.trust import Address
from core.trust.identity import text_id
from tests.support.contexts import context_of
from tests.support.node_messages import from_frame
from tests.support.plans import mac_id, plan_of

HEAD, OWN = mac_id(0), mac_id(1)
PLAN = PlanId(HEAD, 7)


def changed(plan: Plan, **changes: object) -> Plan:
    return msgspec.structs.replace(plan, **changes)


def forward(plan: Plan) -> Plan:
    return changed(plan, topology="forward", output=plan.stages[-1].device_id)


def reverse(plan: Plan) -> Plan:
    """The same Macs in a reverse ring; the head's layers come after those of the others."""
    spans = [(4, 6), (0, 2), (2, 4)]
    stages = tuple(changed_stage(s, start, stop) for s, (start, stop) in zip(plan.stages, spans, strict=True))
    return changed(plan, topology="reverse", stages=stages)


def changed_stage(stage: Stage, start: int, stop: int) -> Stage:
    return msgspec.structs.replace(stage, start=start, stop=stop)


@pytest.mark.parametrize("bend", [lambda p: p, forward, reverse])
def test_the_plan_of_an_honest_head_is_taken(bend: Callable[[Plan], Plan]) -> None:
    check_order(bend(plan_of(3)), 1, HEAD, OWN)


@pytest.mark.parametrize(
    ("bend", "index"),
    [
        (lambda p: p, 0),
        (lambda p: p, 2),
        (lambda p: p, 3),
        (lambda p: p, -2),
        (lambda p: changed(p, stages=()), 1),
        (lambda p: changed(p, layers=p.layers + 1), 1),
        (lambda p: changed(p, plan_gen=1 << 40), 1),
        (lambda p: changed(p, plan_gen=0), 1),
        (lambda p: changed(p, stages=(p.stages[1], p.stages[0], p.stages[2])), 1),
        (lambda p: changed(p, stages=(p.stages[0], p.stages[1], p.stages[1])), 1),
        (lambda p: changed(p, stages=p.stages * (MAX_STAGES // 2)), 1),
        (lambda p: changed(p, output=mac_id(1)), 1),
        (lambda p: changed(p, output=mac_id(7)), 1),
        (lambda p: changed(p, topology="single"), 1),
        (lambda p: changed(p, topology="forward"), 1),
        (lambda p: changed(p, topology="reverse"), 1),
        (lambda p: changed(forward(p), topology="private"), 1),
        (lambda p: changed(reverse(p), topology="private"), 1),
        (lambda p: changed(reverse(p), output=mac_id(2)), 1),
        (lambda p: changed(reverse(p), layers=7), 1),
    ],
)
def test_a_plan_that_no_honest_head_makes_is_refused(bend: Callable[[Plan], Plan], index: int) -> None:
    with pytest.raises(ProtocolError, match="plan is not valid"):
        check_order(bend(plan_of(3)), index, HEAD, OWN)


def test_a_plan_from_a_mac_that_is_not_its_head_is_refused() -> None:
    with pytest.raises(ProtocolError):
        check_order(plan_of(3), 1, mac_id(2), OWN)


def test_only_the_generation_of_a_plan_may_move_on() -> None:
    plan = plan_of(3)
    assert same_plan(changed(plan, plan_gen=plan.plan_gen + 1), plan)
    assert not same_plan(changed(plan, plan_gen=plan.plan_gen - 1), plan)
    assert not same_plan(changed(plan, model="another", plan_gen=plan.plan_gen + 1), plan)
    assert not same_plan(changed(plan, stages=plan.stages[:2]), plan)


@pytest.mark.parametrize(
    "field", ["memory_bytes", "budget_bytes", "used_bytes", "worker_pid", "worker_rss_bytes", "spare_rss_bytes"]
)
def test_a_negative_size_or_process_id_is_refused(field: str) -> None:
    fine = Status(
        name="n",
        chip="c",
        memory_bytes=1,
        budget_bytes=1,
        used_bytes=1,
        worker_pid=1,
        worker_rss_bytes=1,
        spare_rss_bytes=1,
    )
    frame = to_frame(Ping(sent=0.0, status=fine))
    assert from_frame(*frame) == Ping(sent=0.0, status=fine)
    evil = msgspec.structs.replace(fine, **{field: -1})
    with pytest.raises(ProtocolError):
        from_frame(*to_frame(Ping(sent=0.0, status=evil)))


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(ProtocolError):
        from_frame(*to_frame(LinkUp.of(plan_of(2), port)))


@pytest.mark.parametrize(
    ("name", "digest"),
    [("", "a" * 64), ("n" * 256, "a" * 64), ("n", "a" * 63), ("n", "A" * 64), ("n", "a" * 64 + "\n"), ("n", "")],
)
def test_a_checksum_that_is_none_is_refused(name: str, digest: str) -> None:
    with pytest.raises(ProtocolError):
        from_frame(*to_frame(FilesReply(plan=PLAN, files={name: digest})))


def test_the_name_of_a_file_cannot_drive_a_terminal() -> None:
    evil = FilesReply(plan=PLAN, files={"model\x1b]52;c;aGk=\x07.safetensors": "a" * 64})
    assert from_frame(*to_frame(evil)) == FilesReply(plan=PLAN, files={"model]52;c;aGk=.safetensors": "a" * 64})


@pytest.mark.parametrize("phase", ["proved", "ready"])
def test_another_mac_cannot_say_that_the_ring_is_proved(phase: str) -> None:
    body = msgspec.json.encode({"type": "StageReport", "stage": {"plan": PLAN, "phase": phase}})
    with pytest.raises(ProtocolError):
        from_frame(FrameType.PLAN, body)


@pytest.mark.promise("P20")
def test_no_text_of_another_mac_brings_a_line_of_its_own() -> None:
    forged = "M1\nTrust: paired (weakest: studio)\u2028Model: llama-405b (ready)\r\t"
    message = from_frame(*to_frame(FilesReply(plan=PLAN, files={forged: "a" * 64})))
    assert isinstance(message, FilesReply)
    assert not {"\n", "\t", "\r", "\u2028"} & set("".join(message.files))


@pytest.mark.parametrize("device_id", ["", "../../etc/passwd", "\x1b]52;c;aGk=\x07", "a" * 26 + "b"])
def test_an_address_for_a_device_id_that_is_none_is_refused(device_id: str) -> None:
    search = Search.__new__(Search)
    with pytest.raises(UsageError):
        search.add(Address(device_id=device_id, host="127.0.0.1", port=1))


@pytest.mark.usefixtures("bonjour")
@pytest.mark.slow
async def test_an_advertisement_speaks_for_the_device_id_of_its_own_name_only() -> None:
    seen: list[Sighting] = []
    heard = asyncio.Event()
    own, liar, victim, honest = (text_id(secrets.token_bytes(16)) for _ in range(4))  # other tests may advertise too

    def note(sighting: Sighting) -> None:
        seen.append(sighting)
        if sighting.device_id == honest:
            heard.set()

    node = context_of(own_id=own, name="own")
    node.signals.on(Sighting, note)
    discovery = Discovery(node)
    rogue = AsyncZeroconf(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)
    try:
        await discovery.look(7001)
        for name, claims in ((liar, victim), (honest, honest)):
            await rogue.async_register_service(
                AsyncServiceInfo(
                    SERVICE_TYPE,
                    f"{name}.{SERVICE_TYPE}",
                    addresses=[socket.inet_aton("127.0.0.1")],
                    port=7002,
                    properties={"id": claims, "name": "mac"},
                    server=f"{name}.local.",
                )
            )
        await asyncio.wait_for(heard.wait(), 15)
    finally:
        await discovery.stop()
        await rogue.async_close()
    assert not {liar, victim} & {s.device_id for s in seen}, "the rogue was advertised first, and was not believed"
