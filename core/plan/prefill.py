"""Who reads prompts beside the ring, and when that is worth it: pure.

A Mac that is quick at arithmetic reads a prompt with all layers, and hands on what its caches hold while it still
reads. The stages take that as they take a mirror back, so the ring reads the last token alone. Between the head and
that Mac this is a plan of its own, of two stages, of which the head has no layers: all that is known of links, of
frames and of who may see what holds there as well.
"""

from __future__ import annotations

import msgspec

from core.events import Plan, Prefill


def reading_plan(plan: Plan, plan_gen: int) -> Plan:
    """What the head and the Mac that reads prompts for `plan` share: its stage embeds and runs all layers."""
    assert plan.prefill
    reader = plan.prefill.stage
    none = msgspec.structs.replace(
        plan.head, start=plan.layers, stop=plan.layers, weight_bytes=0, kv_bytes=0, step_bytes=0
    )
    return Plan(
        plan_gen=plan_gen,
        model=plan.model,
        fingerprint=plan.fingerprint,
        topology="reverse",
        layers=plan.layers,
        context=plan.context,
        chunk=plan.chunk,
        rows=1,
        kv_bits=plan.kv_bits,
        stages=(none, reader),
        output=plan.head.device_id,
    )


def is_worth(prefill: Prefill, tokens: int, unread: int) -> bool:
    """Whether that Mac should read a beginning of `tokens` tokens, of which the ring would read `unread`: it has none
    of them in its memory.
    """
    return unread >= prefill.least and prefill.share * tokens < unread
