"""The engine over a network that does what it likes: each answer is what it would be alone, and nothing is left."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from core.engine.requests import Request
from core.errors import LinkTimeout, ProtocolError
from tests.simulated import VOCABULARY, alone
from tests.simulated_head import ENDLESS, Head


class Schedule:
    """One seeded run. Requests come and are cancelled at any time; stages fail; links are slow, break or lose frames;
    chunks and their window change on the way; a ring may be gone for good and be followed by another.
    """

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        is_large = seed % 100 == 0
        self.stages = random.randint(1, 4)
        self.head = Head(
            self.stages,
            rows=64 if is_large else random.choice((1, 2, 3, 4, 8, 64)),
            context=ENDLESS if is_large else random.choice((20, 60, ENDLESS)),
            chunk=random.randint(1, 6),
            window=random.randint(1, 5),
            batched=is_large or random.random() < 0.8,
            queue=random.choice((2, 8, 64)),
            tries=random.choice((3, ENDLESS, ENDLESS, ENDLESS)),
            try_s=random.choice((40, 200)),
        )
        self.requests = [self._request(number) for number in range(random.randint(1, 80 if is_large else 8))]
        self.breaks = random.choice((0.0, 0.0, 0.01))
        self.fails = random.choice((0.0, 0.0, 0.01))
        self.cancels = random.choice((0.0, 0.01))
        self.refused = 0
        self.now = 0.0
        self.has_news = True  # the head was told something since it had nothing to put

    def run(self) -> None:
        coming = list(self.requests)
        while coming or not self.head.scheduler.idle or len(self.head.ring.outstanding):
            self.now += 1
            assert self.now < 50_000, "it never ends"
            if coming and self.random.random() < 0.5:
                self.refused += not self.head.submit(coming.pop(0))
                self.has_news = True
            if self.cancels and self.random.random() < self.cancels:
                self.has_news = True
                self.head.cancel(self.random.choice(self.requests).request_id)
                self.head.scheduler.chunk, self.head.scheduler.window = self.random.choice(((1, 4), (3, 2), (9, 1)))
            try:
                self._something()
            except LinkTimeout:
                self.head.gone()
                self.has_news = True
        self._check()

    def _request(self, number: int) -> Request:
        random = self.random
        return Request(
            request_id=f"{number:032x}",
            tokens=random.choices(range(VOCABULARY), k=random.randint(1, 7)),
            max_tokens=random.randint(1, 14),
            min_tokens=random.randrange(4),
            eos=random.choices(range(VOCABULARY), k=random.randrange(3)),
        )

    def _something(self) -> None:
        """One of the stages, or the head, does one thing."""
        random, ring = self.random, self.head.ring
        if self.breaks and random.random() < self.breaks:
            ring.lose()  # the next frame shows the gap, or nothing does until the time is up
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
        elif link == 0:
            self.head.collect(self.now, fails)
            self.has_news = True
        elif link:
            try:
                ring.deliver(link)
            except ProtocolError:
                ring.relink(self.now)

    def _check(self) -> None:
        for stage in self.head.ring.stages:
            assert not stage.handles, "a handle is left"
            assert not stage.broken, "what failed is left"
        assert len(self.head.reasons) + self.refused == len(self.requests)
        for asked in self.requests:
            reason = self.head.reasons.get(asked.request_id, "refused")
            answer, whole = self.head.answers.get(asked.request_id, []), alone(asked, self.stages)
            assert answer == whole if reason in ("stop", "length") else answer == whole[: len(answer)]


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(10_000, 10_500), id="500"),
        pytest.param(range(10_000), id="10000", marks=pytest.mark.slow),
    ],
)
def test_every_answer_is_what_it_would_be_alone_whatever_the_network_does(seeds: range) -> None:
    kinds: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:
            raise AssertionError(f"schedule {seed}") from error
        kinds += schedule.head.kinds + Counter(schedule.head.reasons.values())
        kinds["repeat"] += schedule.head.ring.repeats
        kinds["refused"] += schedule.refused
    expected = {"Chunk", "Step", "New", "Merge", "Extend", "Keep", "Copy", "Drop", "repeat", "refused"}
    expected |= {"stop", "length", "cancelled", "lost"}
    assert min(kinds[kind] for kind in expected) > len(seeds) // 50, kinds
