"""Mistakes in the deciding code; a schedule must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from core.link.frames import Buffer
from core.node.answers import kv_mirror
from core.node.answers.answers import Answers
from core.node.answers.kv_mirror import Mirror
from core.node.peers.own_mac import OwnMac
from core.node.plans import plan_machine
from core.node.plans.plan_machine import PlanMachine
from core.node.ring.plan_member import PlanMember
from core.worker import mirroring
from core.worker.kv_spans import CachePart, decode_caches
from core.worker.messages import MirrorSpan, Token

Patch = pytest.MonkeyPatch


def late_answers_to_a_seek(patch: Patch) -> None:
    """Count any answer to a seek, also a late one to an earlier question."""
    patch.setattr(PlanMachine, "_is_last", lambda machine, search: machine.phase == "replan")


def a_wrong_token_index(patch: Patch) -> None:
    """Take every token for the next one, whatever its index."""
    handle = Answers.handle_report

    def handle_report(answers: Answers, report: Any) -> None:
        running = answers._running.get(report.request_id)
        if isinstance(report, Token) and running:
            report = replace(report, index=len(running.tokens) + len(running.unread))
        handle(answers, report)

    patch.setattr(Answers, "handle_report", handle_report)


def no_back_off(patch: Patch) -> None:
    """Retry at once, without a back-off."""
    patch.setattr(plan_machine, "BACK_OFF_S", (0.0,) * len(plan_machine.BACK_OFF_S))


def beats_that_say_nothing(patch: Patch) -> None:
    """Report each change of a stage once, and not again with the beats."""
    patch.setattr(OwnMac, "stage_of", lambda own, head: None)


def orders_that_are_given_once(patch: Patch) -> None:
    """Give no order again, whatever the beats show."""
    patch.setattr(plan_machine, "REPEAT_S", 1e9)


def a_plan_that_is_taken_in_silence(patch: Patch) -> None:
    """Load another model without telling the head of the old plan that its layers are gone."""
    prepare = PlanMember._prepare

    async def taking(member: PlanMember, head: str, *rest: Any) -> None:
        member._head = None
        await prepare(member, head, *rest)

    patch.setattr(PlanMember, "_prepare", taking)


def a_span_in_the_wrong_place(patch: Patch) -> None:
    """Give the cache part of one layer to another layer."""

    def swapped(data: Buffer) -> dict[int, CachePart]:
        caches = decode_caches(data)
        return dict(zip(caches, reversed(caches.values()), strict=True))

    patch.setattr(mirroring, "decode_caches", swapped)


def spans_of_another_conversation(patch: Patch) -> None:
    """Restore a mirrored row for any prompt, without comparing the tokens."""

    def common(row: Sequence[Any], beginning: Sequence[int]) -> list[Any]:
        return [kept for kept in row if kept.span.stop < len(beginning)]

    patch.setattr(kv_mirror, "_common", common)


def states_that_are_not_whole(patch: Patch) -> None:
    """Take the first part of the states for all of them."""
    keep = Mirror.keep

    def kept(own: Mirror, request_id: str, span: MirrorSpan, tokens: Sequence[int]) -> bool:
        return keep(own, request_id, replace(span, needs=0) if span.start == span.stop else span, tokens)

    patch.setattr(Mirror, "keep", kept)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    each.__name__: each
    for each in (
        late_answers_to_a_seek,
        a_wrong_token_index,
        no_back_off,
        beats_that_say_nothing,
        orders_that_are_given_once,
        a_plan_that_is_taken_in_silence,
        a_span_in_the_wrong_place,
        spans_of_another_conversation,
        states_that_are_not_whole,
    )
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The product with that mistake, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name](patch)
        yield
