"""Figures of every hop: the sender's work, the receiver's waiting, and the round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.events import HopSample, PathKind, Plan
from core.worker.messages import StageSample


def hop_samples(
    plan: Plan,
    stages: Sequence[StageSample],
    rtt: Callable[[str, str], float | None],
    path: Callable[[str], PathKind] = lambda _: "",
) -> list[HopSample]:
    """One sample per hop of the ring; `path` gives the kind of network of a Mac's outgoing link."""
    hops = []
    for index, sent in enumerate(stages):
        after = (index + 1) % len(stages)
        source, target, received = plan.stages[index], plan.stages[after], stages[after]
        hops.append(
            HopSample(
                source=source.device_id,
                target=target.device_id,
                frames=sent.frames,
                bytes=sent.bytes,
                compute_s=sent.compute_s,
                codec_s=sent.codec_s,
                seal_s=sent.seal_s,
                send_s=sent.send_s,
                wait_s=received.wait_s,
                open_s=received.open_s,
                since=stages[0].since,
                wire_s=received.wire_s,
                rtt_s=rtt(source.device_id, target.device_id),
                queue=received.queue,
                path=path(source.device_id),
            )
        )
    return hops
