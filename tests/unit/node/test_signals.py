"""Signals reach the subscribers of their kind, in order of subscription."""

from __future__ import annotations

import asyncio

from core.node.base.signals import AwaitedSignal, Signal, Signals


class Rang(Signal, frozen=True):
    number: int


class Knocked(Signal, frozen=True):
    number: int


class Served(AwaitedSignal, frozen=True):
    number: int


def test_a_signal_is_dealt_with_before_its_emitter_goes_on_by_those_of_its_kind_in_their_order() -> None:
    signals, dealt = Signals(), list[str]()
    signals.on(Rang, lambda rang: dealt.append(f"first {rang.number}"))
    signals.on(Rang, lambda rang: dealt.append(f"second {rang.number}"))
    signals.on(Knocked, lambda knocked: dealt.append(f"knocked {knocked.number}"))
    signals.emit(Rang(1))
    assert dealt == ["first 1", "second 1"]
    signals.emit(Knocked(2))
    assert dealt[2:] == ["knocked 2"]


async def test_who_delivers_a_signal_waits_for_each_that_deals_with_it() -> None:
    signals, may, dealt = Signals(), asyncio.Event(), list[str]()

    async def first(served: Served) -> None:
        await may.wait()
        dealt.append(f"first {served.number}")

    async def second(served: Served) -> None:
        dealt.append(f"second {served.number}")

    signals.on_awaited(Served, first)
    signals.on_awaited(Served, second)
    delivery = asyncio.create_task(signals.deliver(Served(1)))
    await asyncio.sleep(0)
    assert not dealt
    may.set()
    await delivery
    assert dealt == ["first 1", "second 1"]
