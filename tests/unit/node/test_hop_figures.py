from __future__ import annotations

import pytest

from core.node.plans.room import hop_samples
from core.worker.messages import StageSample
from tests.support.plans import mac_id, plan_of


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_hop_has_its_senders_work_and_its_receivers_waiting(count: int) -> None:
    stages = [
        StageSample(
            index=n,
            frames=10 + n,
            bytes=100 + n,
            compute_s=1.0 + n,
            codec_s=2.0 + n,
            seal_s=3.0 + n,
            send_s=4.0 + n,
            wait_s=5.0 + n,
            open_s=6.0 + n,
            queue=20 + n,
        )
        for n in range(count)
    ]
    trips = {(mac_id(0), mac_id(1)): 0.25}
    hops = hop_samples(plan_of(count), stages, lambda a, b: trips.get((a, b)))
    assert [(h.source, h.target) for h in hops] == [(mac_id(n), mac_id((n + 1) % count)) for n in range(count)]
    for n, hop in enumerate(hops):
        after = (n + 1) % count
        assert (hop.frames, hop.bytes, hop.queue) == (10 + n, 100 + n, 20 + after)
        sent = (hop.compute_s, hop.codec_s, hop.seal_s, hop.send_s)
        assert sent == (1.0 + n, 2.0 + n, 3.0 + n, 4.0 + n)
        assert (hop.wait_s, hop.open_s) == (5.0 + after, 6.0 + after)
        assert hop.rtt_s == (0.25 if n == 0 else None)
