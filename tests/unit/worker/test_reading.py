"""A prefill Mac fails in any way: the ring reads the prompt itself, and nothing waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from core.engine.requests import Request
from core.engine.ring_work import Drop, New
from core.errors import LinkLost
from core.events import Plan, Prefill
from core.sampling_options import Sampling
from core.worker import reading as reading_of
from core.worker.kv_spans import STATE, CachePart, KvSpan
from core.worker.messages import PrefillBroken, ReadBeside, Report
from core.worker.mirroring import CutRequest
from core.worker.pipeline import StepAnswer
from core.worker.reading import Reading, Waited
from tests.support.plans import plan_of

CACHES = 2
WHOLE = {n: CachePart(0, None, b"kv") for n in range(CACHES)}
PROMPT = list(range(41))
ID = "ab" * 16


class FakePrefillMac:
    """The prefill Mac as the head sees it: the requests sent to it, and its replies."""

    needs_new_keys = False
    is_at_rest = True

    def __init__(self) -> None:
        self.asked: list[CutRequest] = []
        self.ops: list[Any] = []
        self.answers: deque[StepAnswer] = deque()
        self.is_closed = False
        self.is_gone = False

    def compose(self, ops: list[Any]) -> None:
        self.ops += ops

    def forward(self, *_: Any, **__: Any) -> None:
        if self.is_gone:
            raise LinkLost("It is gone.")

    def mirror(self, _: int, __: KvSpan, asked: CutRequest) -> None:
        self.asked.append(asked)

    def says(self, caches: Mapping[int, CachePart]) -> None:
        asked = self.asked.pop(0)
        self.answers.append(StepAnswer(asked, span=KvSpan(5, 0, asked.start, asked.stop, caches)))  # type: ignore[arg-type]

    def take(self) -> StepAnswer | None:
        return self.answers.popleft() if self.answers else None

    def send_again(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Ring:
    """A scheduler that records the rows started, and whether the ring reads the prompt."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int, bool]] = []
        self.source: Any = None
        self.is_read_by_ring = False

    def reusable(self, _: Request) -> int:
        return 0

    def begin(self, _: Request, __: int, source: Any) -> bool:
        self.source = source
        return True

    def add(self, _: str, span: KvSpan, *, is_last: bool) -> None:
        self.spans.append((span.start, span.stop, is_last))

    def fail(self, request_id: str) -> None:
        self.is_read_by_ring = True
        self.source.ended(request_id, 0)


def a_reading() -> tuple[Reading, FakePrefillMac, Ring, list[Report]]:
    ring, told, mac = Ring(), list[Report](), FakePrefillMac()
    plan: Plan = plan_of(2)
    plan = replace(plan, chunk=16, prefill=Prefill(stage=plan.stages[0], least=32, share=0.5))
    reading = Reading(plan, CACHES, ring, ring, told.append)  # type: ignore[arg-type]
    reading.link(mac, 7)  # type: ignore[arg-type]
    request = Request(request_id=ID, tokens=PROMPT, max_tokens=4, sampling=Sampling())
    assert not reading.begin(replace(request, tokens=PROMPT[:20]))
    assert reading.begin(request)
    assert not reading.begin(replace(request, request_id="cd" * 16))  # one at a time
    while reading.turn():
        pass
    return reading, mac, ring, told


def test_it_has_two_chunks_to_go_on_with_and_what_it_read_is_given_on_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading_of, "monotonic", lambda: 5.0)
    reading, mac, ring, _ = a_reading()
    assert [(asked.start, asked.stop) for asked in mac.asked] == [(0, 16), (16, 32)]
    for _ in range(3):
        mac.says(WHOLE)
        while reading.turn():
            pass
    assert ring.spans == [(0, 16, False), (16, 32, False), (32, 40, True)]
    assert [type(op) for op in mac.ops] == [New, Drop]
    assert not ring.is_read_by_ring
    ring.source.ended(ID, 40)
    assert reading.take_waited(ID) == Waited(40, 5.0)  # its first token counts from there
    assert reading.take_waited(ID) is None


@pytest.mark.parametrize(
    "caches",
    [
        pytest.param({}, id="it could not"),
        pytest.param({0: CachePart(0, None, b"kv")}, id="a cache is missing"),
        pytest.param({**WHOLE, 9: CachePart(0, None, b"kv")}, id="a cache that the model does not have"),
        pytest.param(dict.fromkeys(range(90_000), CachePart(1, STATE, b"")), id="states without end"),
    ],
)
@pytest.mark.promise("P37")
def test_what_is_not_what_was_asked_for_is_read_by_the_ring(caches: Mapping[int, CachePart]) -> None:
    reading, mac, ring, told = a_reading()
    mac.says(caches)
    while reading.turn():
        pass
    assert ring.is_read_by_ring
    assert ring.spans == []
    assert [each.tokens for each in told if isinstance(each, ReadBeside)] == [0]
    assert (waited := reading.take_waited(ID))
    assert waited.tokens == 0
    assert [type(op) for op in mac.ops] == [New, Drop]
    mac.says(WHOLE)  # spans of a cancelled request have no effect
    mac.is_at_rest = False
    reading.turn()
    assert ring.spans == []


def test_a_link_that_breaks_is_told_and_the_ring_reads() -> None:
    reading, mac, ring, told = a_reading()
    mac.is_gone = True
    mac.says(WHOLE)
    while reading.turn():
        pass
    assert ring.is_read_by_ring
    assert mac.is_closed
    assert [each.plan_gen for each in told if isinstance(each, PrefillBroken)] == [7]
    assert not reading.is_busy
    assert not reading.begin(Request(request_id="ef" * 16, tokens=PROMPT, max_tokens=4, sampling=Sampling()))
