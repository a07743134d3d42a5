"""Real workers lose an answer and continue from its mirror, for every kind of caches."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Final

import pytest
from msgspec.structs import replace

from core.engine.requests import Request
from core.node.answers.kv_mirror import Mirror
from core.settings import GB
from core.worker.messages import AnswerDone, LinkBroken, Load, Loaded, Mirrored, MirrorSpans, Restored, Token, WantSpans
from tests.support.alone import Alone
from tests.support.cluster import Make
from tests.support.kinds import Kind, model_of
from tests.support.reloading import Rings, shared_rings
from tests.support.worker_ring import LINK_S, WorkerRing, a_request

ANSWER_S: Final = 120.0
CHUNK: Final = 32
PROMPT: Final = [8 + (7 * n) % 190 for n in range(80)]
TOKENS: Final = 56
LOST_AT: Final = 44


class Life:
    """One life of an answer: `tokens` were written, and `restored` tokens came back, until its end or a loss."""

    def __init__(self, ring: WorkerRing, mirror: Mirror, request: Request) -> None:
        self._ring, self._mirror = ring, mirror
        self.request = replace(request, mirrored=mirror.begin(request.request_id, request.prefix))
        self.tokens: list[int] = []
        self.restored = 0

    def run(self, model: str, lost_at: int | None = None) -> list[int]:
        """Run the answer and return its tokens; after `lost_at` tokens the other worker forgets its layers."""
        head, other = self._ring.workers
        head.send(self.request)
        while True:
            match self._ring._next(perf_counter() + ANSWER_S).report:
                case Mirrored(request_id=name, span=span):
                    self._mirror.keep(name, span, [*self.request.prefix, *self.tokens])
                case WantSpans(request_id=name, behind=behind):
                    spans = self._mirror.spans(name, behind)
                    head.send(MirrorSpans(request_id=name, behind=behind, spans=spans))
                case Restored(tokens=tokens):
                    self.restored = tokens
                case Token(token=token):
                    self.tokens.append(token)
                    if len(self.tokens) == lost_at:
                        other.send(Load(plan=self._ring.plan, index=1, directory=model))
                        other.expect(Loaded, LINK_S)
                case LinkBroken(plan_gen=gen) if gen == self._ring.plan.plan_gen:
                    self._ring.relink()
                case AnswerDone(problem=problem):
                    assert (problem.kind if problem else None) == ("CachesLost" if lost_at else None)
                    return [*self.request.written, *self.tokens]


@pytest.fixture(scope="module")
def rings() -> Iterator[Rings]:
    with shared_rings() as shared:
        yield shared


@pytest.mark.parametrize("family", ["qwen3_next", pytest.param("deepseek_v41", marks=pytest.mark.nightly)])
def test_states_and_a_familys_own_caches_come_back(made: Make, rings: Rings, family: str) -> None:
    model = model_of(Kind(family), made)
    request = a_request(PROMPT, max_tokens=TOKENS, min_tokens=TOKENS)
    expected = Alone(model, CHUNK).answer(request).tokens
    mirror = Mirror()
    mirror.limit = GB
    ring = rings.ring(model, (4,), chunk=CHUNK, rows=1, mirror_bytes=GB)
    written = Life(ring, mirror, request).run(str(model), LOST_AT)
    again = Life(ring, mirror, replace(request, written=written))
    assert tuple(again.run(str(model))) == expected
    assert len(PROMPT) + len(written) - again.restored <= 64
