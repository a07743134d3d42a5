"""Every number from outside has bounds, declared in the type that decodes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from core.engine.sampling import Picked
from core.node.relay.relayed_values import Relayed, Wanted
from core.requests.answers import AnswerId, ChatRequest
from core.requests.checks import SpeedRequest
from core.requests.conversations import Conversation, ConversationId, SessionName
from core.requests.disks import CopyRequest, DownloadRequest
from core.requests.plans import LoadRequest, PreviewRequest, RecoveryOrder
from core.requests.trace import TraceRequest
from core.requests.trust import Address, Digits, ForkChoice, PairingOffer, PairWith, RecoveryPhrase, Rename, Target
from core.worker.messages import StageSample
from core.worker.work_frames import Order, ResumeState
from tests.support.node_messages import KINDS

OF_MACS: list[Any] = [*KINDS, Relayed, Wanted, StageSample, Picked, Order, ResumeState]
OF_CLIENTS: list[Any] = [PreviewRequest, LoadRequest, ChatRequest, Conversation, ConversationId]
OF_CLIENTS += [RecoveryOrder, DownloadRequest, CopyRequest, AnswerId, SessionName, SpeedRequest, Address, PairWith]
OF_CLIENTS += [TraceRequest, PairingOffer, Digits, Target, Rename, RecoveryPhrase, ForkChoice]


def boundless(kind: inspect.Type, at: str, seen: set[type]) -> Iterator[str]:
    """The places in a type where a number has no limit on either side."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            if (kind.ge, kind.gt) == (None, None) or (kind.le, kind.lt) == (None, None):
                yield at
        case inspect.StructType(cls=cls, fields=fields) | inspect.NamedTupleType(cls=cls, fields=fields):
            for field in fields if cls not in seen else ():
                seen.add(cls)
                yield from boundless(field.type, f"{cls.__name__}.{field.name}", seen)
        case _:
            for name in ("type", "types", "item_type", "item_types", "key_type", "value_type"):
                inner = getattr(kind, name, ())
                for each in inner if isinstance(inner, tuple) else (inner,):
                    yield from boundless(each, at, seen)


@pytest.mark.parametrize("kind", [*OF_MACS, *OF_CLIENTS], ids=lambda kind: getattr(kind, "__name__", str(kind))[:40])
@pytest.mark.promise("P8")
def test_a_number_that_comes_from_elsewhere_has_bounds(kind: Any) -> None:
    assert list(boundless(inspect.type_info(kind), "", set())) == []


def test_a_number_without_bounds_is_found() -> None:
    class Told(msgspec.Struct):
        size: int = 0
        times: dict[str, tuple[float, ...]] = {}
        word: str = ""

    assert list(boundless(inspect.type_info(list[Told]), "", set())) == ["Told.size", "Told.times"]
