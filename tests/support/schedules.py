"""One seeded run of the engine over a simulated ring."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from msgspec.structs import replace

from core.engine.drafting import Drafter
from core.engine.prefix_cache import CachedPrefix
from core.engine.requests import Request
from core.errors import Busy, LinkTimeout, ProtocolError
from core.settings import ROW_GROWTH
from tests.support.simulated import VOCABULARY, Foreseer, alone
from tests.support.simulated_head import ENDLESS, Head


class Schedule:
    """One seeded run of everything that can happen to a head.

    Requests come and are cancelled at any time. Many continue earlier answers or a part of one; some come when a part
    of their answer is written, or again after a cancellation or loss. Rows come from elsewhere, or are pinned for a
    while. Stages fail; links are slow, break or lose frames. Chunks and their window change. Another ring may replace a
    lost one.
    """

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        is_large = seed % 100 == 0
        self.stages = random.randint(1, 4)
        self.head = Head(
            self.stages,
            rows=64 if is_large else random.choice((1, 2, 3, 4, 8, 64)),
            context=ENDLESS if is_large else random.choice((20, 60, 120, ENDLESS)),
            chunk=random.randint(1, 6),
            window=random.randint(1, 5),
            batched=is_large or random.random() < 0.7,
            queue=random.choice((2, 8, 64)),
            tries=random.choice((3, ENDLESS, ENDLESS, ENDLESS)),
            try_s=random.choice((40, 200)),
            draft=random.choice((0, 1, 8)),
            trim_limit=random.choice((None, None, 0, 12, 30)),
            goes_ahead=random.random() < 0.7,
            drafter=self._drafter() if random.random() < 0.7 else None,
            growth=(1, 5, ROW_GROWTH)[seed % 3],
        )
        self.requests: list[Request] = []
        self.coming = random.randint(1, 80 if is_large else 8)
        self.often = random.choice((0.5, 0.02))
        self.breaks = random.choice((0.0, 0.0, 0.01))
        self.fails = random.choice((0.0, 0.0, 0.01))
        self.cancels = random.choice((0.0, 0.01))
        self.follows = random.choice((0.0, 0.7))
        self.holds = random.choice((0.0, 0.0, 0.01))
        self.resumes = random.choice((0.0, 0.5))
        self.resumed = 0
        self.pinned: list[CachedPrefix] = []
        self.refused = 0
        self.now = 0.0
        self.has_news = True  # the head got a message since it last had nothing to put

    def run(self) -> None:
        while self.coming or self.pinned or not self.head.scheduler.idle or len(self.head.ring.outstanding):
            self.now += 1
            assert self.now < 50_000, "it never ends"
            if self.coming and self.random.random() < self.often:
                self._submit()
            if self.cancels and self.requests and self.random.random() < self.cancels:
                self.has_news = True
                self.head.cancel(self.random.choice(self.requests).request_id)
                self.head.scheduler.chunk, self.head.scheduler.window = self.random.choice(((1, 4), (3, 2), (9, 1)))
            if self.pinned or (self.holds and self.random.random() < self.holds):
                self._hold()
            try:
                self._something()
            except LinkTimeout:
                self.head.gone()
                self.has_news = True
        self._check()

    def _drafter(self) -> Drafter:
        """A drafter with a draft that is sometimes right, and a clock that runs at random."""
        model = Foreseer(self.stages, self.random.choice((0.0, 0.5, 0.9, 1.0)), self.random)
        self.clock = 0.0

        def clock() -> float:
            self.clock += self.random.choice((0.001, 0.01, 1.0))
            return self.clock

        return Drafter(model, self.random.choice((1, 3, 8)), self.stages, clock)

    def _submit(self) -> None:
        self.coming -= 1
        self.has_news = True
        broken = [said for said in self.requests if self.head.reasons.get(said.request_id) in ("cancelled", "lost")]
        if broken and self.random.random() < self.resumes:
            said = self.random.choice(broken)
            self.resumed += self.head.submit(replace(said, written=self.head.answers[said.request_id]))
            return
        self.requests.append(self._request(len(self.requests)))
        self.refused += not self.head.submit(self.requests[-1], may_draft=self.random.random() < 0.9)

    def _request(self, number: int) -> Request:
        random = self.random
        request = Request(
            request_id=f"{number:032x}",
            tokens=self._history() + random.choices(range(VOCABULARY), k=random.randint(1, 7)),
            max_tokens=random.randint(1, 14),
            min_tokens=random.randrange(4),
            eos=random.choices(range(VOCABULARY), k=random.randrange(3)),
        )
        if random.random() >= 0.4 * self.resumes:
            return request
        whole = alone(request, self.stages)
        return replace(request, written=whole[: random.randint(1, len(whole))])

    def _history(self) -> list[int]:
        """The tokens of an earlier request and its answer, or the first part of them; often none."""
        random = self.random
        if not self.requests or random.random() >= self.follows:
            return []
        said = random.choice(self.requests)
        history = said.tokens + self.head.answers.get(said.request_id, [])
        return history[: random.choice((len(history), random.randrange(len(history))))][:40]

    def _hold(self) -> None:
        """Pin a row for a while, release one, or take one from elsewhere."""
        random, scheduler, parked = self.random, self.head.scheduler, self.head.scheduler.parked
        self.has_news = True
        if self.pinned:
            if random.random() < 0.05:
                scheduler.unpin(self.pinned[0].handle)
                assert self.pinned[0] in parked or self.fails or self.breaks
                self.pinned.clear()
        elif parked and random.random() < 0.5:
            row = random.choice(parked)
            with suppress(Busy):
                scheduler.pin(row.handle)
                self.pinned = [row]
        elif parked and random.random() < 0.2:
            scheduler.gone(random.choice(parked).handle)
        else:
            self.head.hold(random.choices(range(VOCABULARY), k=random.randint(4, 20)))

    def _something(self) -> None:
        """Run one random action of a stage or the head."""
        random, ring = self.random, self.head.ring
        if self.breaks and random.random() < self.breaks:
            ring.lose()  # the next frame shows the gap, otherwise only a timeout does
            if random.random() < 0.7:
                ring.relink(self.now)
        if due := ring.outstanding.due(self.now):
            ring.send(due)
        fails = self.fails > 0 and random.random() < self.fails
        if fails:
            random.choice(ring.stages).fails = True
        ready = [number for number, frames in enumerate(ring.links) if frames] + [-1] * self.has_news
        link = random.choice(ready) if ready else None
        if link == -1:
            self.has_news = self.head.turn(self.now) is not None
        elif link is not None:
            try:
                if link:
                    ring.deliver(link)
                else:
                    self.has_news = True
                    self.head.collect(self.now, fails)
            except ProtocolError:
                ring.relink(self.now)

    def _check(self) -> None:
        self.head.check_parked()
        assert len(self.head.reasons) + self.refused == len(self.requests)
        for asked in self.requests:
            reason = self.head.reasons.get(asked.request_id, "refused")
            answer, whole = self.head.answers.get(asked.request_id, []), alone(asked, self.stages)
            assert answer == whole if reason in ("stop", "length") else answer == whole[: len(answer)]
